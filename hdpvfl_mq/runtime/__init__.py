"""Input and output around nodes: sockets, runner, simulation, and what a process needs to start.

It owns clocks, sockets, keys, settings files and snapshots. It knows no role; it runs any node it
is given.
"""
