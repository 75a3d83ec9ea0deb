"""The private model: weights computed from noised statistics, reusable without further cost.

It owns plan, bounds, statistics and fits of the method; docs/private-model.md gives the proof.
Both sides of the round are in parties/rounds/private_model.py.
"""
