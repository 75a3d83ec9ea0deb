"""Bytes to envelopes and back.

It owns canonical packing, limits, sequence numbers and signatures. It knows what a message is
called, not what it means.
"""
