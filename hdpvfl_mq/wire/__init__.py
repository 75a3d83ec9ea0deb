"""Bytes to envelopes and back: canonical packing, limits, sequence numbers, signatures."""
