"""A node: machine + journal + mailbox. Frames in, frames out, synchronous.

It owns the order of a turn: verify, step, book, commit, and only then send. It knows no socket
and no clock.
"""
