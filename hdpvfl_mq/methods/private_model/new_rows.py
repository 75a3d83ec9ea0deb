"""Theta of rows that the last fit has not seen, from their columns and received scores.

It owns that one formula; a scoring session, which knows each partner's answer, has its own
(parties/rounds/score_sums.py).
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.methods.private_model.expectation import Expected, Matrix
from hdpvfl_mq.methods.private_model.joint import averaged
from hdpvfl_mq.methods.private_model.last_fit import LastFit


def theta_of(
    fit: LastFit, family: Family, A: Matrix, expected: Expected | None, received: Matrix
) -> FloatVector:
    """Theta without offsets; `A` and `fit.w` are in the units of `expected`."""
    theta: FloatVector = A @ fit.w
    if expected is None or not fit.is_joint:
        return theta
    theta = theta + expected.of_rows(A, received) @ fit.coefficients
    doubt = float(fit.coefficients @ expected.doubt_seen @ fit.coefficients)
    return averaged(family, theta, np.array([max(doubt, 0.0)]))
