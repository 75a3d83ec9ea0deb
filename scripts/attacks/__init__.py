"""Attacks on real processes, one function each; scripts/attack.py runs them and draws the table."""
