"""Gradient descent as in the paper: plan, bounds and published noise.

It owns the sound recursion, the lemmas as published, and the step sizes of a run. Both sides of a
round are in parties/rounds/descent.py.
"""
