"""The star: a router that never opens a body, and the coordinator it hosts."""
