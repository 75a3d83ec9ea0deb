"""The private model: weights that follow from noised statistics and may be used for ever.

It owns plan, bounds, statistics and fits of the method; docs/private-model.md has the argument.
Both sides of the round are in parties/rounds/private_model.py.
"""
