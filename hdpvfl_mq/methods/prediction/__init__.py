"""Scoring rows with the weights of an earlier run: plan and bound.

It owns the cost of a score for the rows that the weights were learnt from. Both sides of the round
are in parties/rounds/prediction.py.
"""
