"""One round of exact minimisers: plan, bounds and the fits of both sides.

It owns the rule from settings to public terms and their proof (docs/one-round.md). Both sides of
the round are in parties/rounds/one_round.py.
"""
