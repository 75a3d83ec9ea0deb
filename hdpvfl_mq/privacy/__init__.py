"""Sensitivity, calibration, noise, mechanism, accounts and ledger of one party.

It knows no model, no message and no peer: bounds come in as numbers, releases go out.
"""
