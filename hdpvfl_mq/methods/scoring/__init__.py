"""Scores from private weights, for the rows that a query names: the plan of a session.

It owns the cost of a score to the person who is scored; it is free for everybody else. Both sides
are in parties/rounds/scoring.py.
"""
