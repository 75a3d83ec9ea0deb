"""A party's process: settings and files to a node, and what a run leaves on disk.

It owns files, ledgers and models of a party. What a party says is decided by the pure roles
beside it.
"""
