"""Where the last fit starts: the prior of the coefficients of the partners' scores.

It owns that prior. For noised scores its mean solves the normal equations of the coefficients. A
partner's weights are a posterior mean, so the covariance of its score with the label is about the
score's own variance: the active party knows the right side of the equations nearly without noise,
and subtracts what its own columns explain. What the noised scores say directly is added by its
precision. All of it is post-processing by the party that holds the labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.methods.private_model.expectation import Expected, Matrix
from hdpvfl_mq.methods.private_model.row_blocks import summed
from hdpvfl_mq.methods.private_model.weights import AVERAGE_SLOPE

# Public prior of a coefficient: its mean is smaller with more partners, since partners overlap;
# part of its deviation is common to all partners.
_OVERLAP = 0.5
_COMMON_STD, _OWN_STD = 0.3, 0.5
# How far the likelihood may move a coefficient: this, over the number of partners if scores are
# noised, because it then sees little but the noise of all of them.
_FIT_COMMON_STD, _FIT_OWN_STD = 0.3, 0.15
# With fewer rows, coefficients stay at the prior mean.
_ROWS_TO_LEARN = 2000
_FIXED_STD = 1e-3
# Error of a score's variance as a forecast of its covariance with the label beyond the active
# party's columns, as a share of the variance. It doubles where these columns explain, by chance
# alone, a share _CHANCE of a score's variance.
_CALIBRATION_STD, _CHANCE = 0.3, 0.2
_RIDGE = 0.02  # for the error of regressions on the active party's columns
_RANGE = (0.0, 1.5)


def prior_mean(partners: int) -> float:
    """The prior mean of a coefficient."""
    return 1.0 / (1.0 + _OVERLAP * (partners - 1))


@dataclass(frozen=True)
class CoefficientPrior:
    """A Gaussian prior of all coefficients."""

    mean: FloatVector
    common_std: float
    own_std: float

    @property
    def covariance(self) -> Matrix:
        """The covariance of the coefficients."""
        found: Matrix = self.common_std**2 + self.own_std**2 * np.eye(len(self.mean))
        return found


def coefficient_prior(
    A: Matrix, direction: FloatVector, curvature: float, expected: Expected
) -> CoefficientPrior:
    """The prior for the last fit.

    Few rows keep the public mean. Exact scores of some rows start from it, and the likelihood
    learns from these rows. Noised scores start from the normal equations.
    """
    partners = expected.partners
    public = np.full(partners, prior_mean(partners))
    if len(A) < _ROWS_TO_LEARN:
        return CoefficientPrior(public, _FIXED_STD, _FIXED_STD)
    if not expected.shares.noise_std.any():
        return CoefficientPrior(public, _FIT_COMMON_STD, _FIT_OWN_STD)
    mean = _normal_equations(A, direction, curvature, expected)
    return CoefficientPrior(mean, _FIT_COMMON_STD / partners, _FIT_OWN_STD / partners)


def _normal_equations(
    A: Matrix, direction: FloatVector, curvature: float, expected: Expected
) -> FloatVector:
    """Posterior means of the coefficients, each within [0, 1.5].

    `direction` and `curvature` are those of the loss at the best constant: for logistic loss y
    minus its mean, and the mean's slope.
    """
    shares, partners = expected.shares, expected.partners
    variance, received = shares.size**2, shares.size**2 + shares.noise_std**2
    seen, slope = expected.seen, AVERAGE_SLOPE * max(curvature, 1e-12)
    found = shares.values.T @ direction[:seen] / seen / slope
    squares = summed(len(direction), lambda rows: np.square(direction[rows]).sum())
    found_error = received * float(squares / len(direction)) / seen / slope**2
    chance = received / variance * A.shape[1] / seen
    prior_error = (_CALIBRATION_STD * (1.0 + (chance / _CHANCE) ** 2) * variance) ** 2
    error = 1.0 / (1.0 / found_error + 1.0 / prior_error)
    with_label = error * (found / found_error + variance / prior_error)
    # The active party's columns explain part of the label, and through the scores part of these.
    own = A.T @ direction / len(A) / slope
    G = A.T @ A / len(A) + _RIDGE * np.eye(A.shape[1])
    error = error + received / seen * float(own @ np.linalg.solve(G, own))
    right = with_label - expected.slopes.T @ own
    S, m = expected.doubt_unseen, np.full(partners, prior_mean(partners))
    V = _COMMON_STD**2 + _OWN_STD**2 * np.eye(partners)
    gain = V @ S @ np.linalg.inv(S @ V @ S + np.diag(error))
    means: FloatVector = np.clip(m + gain @ (right - S @ m), *_RANGE)
    return means
