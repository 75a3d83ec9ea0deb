"""The broker's process: sockets, files and the tasks of a standing service.

It owns connections and hosted runs; every decision about a run is made by the pure roles in
`broker`.
"""
