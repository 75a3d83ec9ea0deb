"""The star: a router that moves frames by header, and the coordinator it hosts.

It owns who is connected, the phases of a run and the end of it. It never opens a body it only
forwards, and knows nothing of data, losses and noise.
"""
