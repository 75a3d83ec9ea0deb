"""What crosses a boundary: messages, envelopes, records, settings.

It owns shapes, bounds and who may send what to whom. Every model is frozen, strict and without
behaviour, and imports no other package of this project.
"""
