"""A party's process: settings and files to a node, and what a run leaves on disk.

It owns a party's files, ledger and models. The pure roles beside it decide what a party sends.
"""
