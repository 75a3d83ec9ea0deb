"""The star: a router that moves frames by header, and the coordinator it hosts.

It owns who is connected, the phases of a run and how a run ends. It never decodes a body that it
only forwards, and it knows nothing about data, losses or noise.
"""
