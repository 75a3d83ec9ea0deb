"""Contribution of each partner, from what the active party holds after its last fit.

It owns that one figure, which never leaves the party.
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.methods.private_model.expectation import Expected, Matrix
from hdpvfl_mq.methods.private_model.last_fit import LastFit
from hdpvfl_mq.methods.private_model.row_blocks import variance


def worth(expected: Expected | None, A: Matrix, fit: LastFit) -> list[float]:
    """Share of theta's variance from each partner that the active party's columns do not explain.

    Overlapping partners each count their common part. All are 0 if the fit uses no partners.
    """
    if expected is None or not fit.is_joint:
        return [0.0] * len(fit.coefficients)
    scores = expected.scores
    theta_variance = float(
        variance(len(A), lambda rows: A[rows] @ fit.w + scores[rows] @ fit.coefficients)
    )
    doubt = float(fit.coefficients @ expected.doubt_seen @ fit.coefficients)
    known = fit.coefficients**2 * np.diag(expected.doubt_unseen)
    whole = max(theta_variance + max(doubt, 0.0), float(known.sum()), 1e-300)
    return [float(share) for share in known / whole]
