"""The shells that move frames: sockets, runner, simulation, and what a process needs to start.

It owns clocks, sockets, keys, settings files and snapshots. It knows no role; it pumps whatever
node it is given.
"""
