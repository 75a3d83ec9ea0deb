"""Generalized linear models inside one party: arithmetic on its own columns.

It owns losses, penalties, blocks of columns and solvers. It knows no noise, message or peer; all
functions are pure.
"""
