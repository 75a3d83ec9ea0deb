"""What crosses a boundary: messages, envelopes, records, settings.

It owns shapes, bounds and who may send what to whom. Everything is frozen, strict and without
behaviour, and imports nothing of ours.
"""
