"""Bytes to envelopes and back.

It owns canonical packing, limits, sequence numbers and signatures. It knows the names of messages,
not their meaning.
"""
