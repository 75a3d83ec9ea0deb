"""The journal: a hash chain of records, its Merkle tree, its store.

It owns how records become bytes and how bytes are checked and stored. It knows no role: the node
writes records, replay and audit read them.
"""
