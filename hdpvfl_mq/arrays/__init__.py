"""Arrays with an entry for every row: in memory or mapped, a chunk at a time.

It owns chunks and the wrapper that keeps un-noised vectors inside the party. It knows no meaning
of an entry.
"""
