"""Scoring rows with weights that an earlier run left: plan and bound.

It owns what a score costs the rows that weights were learnt from. Both sides of the round are in
parties/rounds/prediction.py.
"""
