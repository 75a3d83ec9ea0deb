"""Calibration, noise, mechanism, accounting and ledger of one party.

It owns what a release is and what it costs. It knows no model, message or peer: bounds come in as
numbers, releases go out.
"""
