"""Generalized linear models in one party's hands: arithmetic on its own columns.

It owns losses, penalties, blocks of columns and solvers. It knows no noise, message or peer; all
of it is pure.
"""
