"""Generalized linear models in one party's hands: pure arithmetic on its own columns."""
