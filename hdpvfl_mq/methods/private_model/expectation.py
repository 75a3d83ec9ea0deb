"""What the active party may expect of its partners' scores: regression calibration.

It owns the conditional mean of exact scores given the own columns and what was received, and the
doubt that is left; it sees no label. Scores have a known deviation (`size`, it follows from
released statistics) and known noise, or no noise and then only some rows of them are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Prior share of a score's variance that the own columns tell.
_TOLD_SHARE = 0.2
_SMALLEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Scores of all partners, in party order: those of the first rows, in units of theta."""

    values: Matrix = field(repr=False)  # (seen rows, partners)
    noise_std: Matrix  # one each; 0 where scores are exact
    size: Matrix  # deviation of a partner's scores


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Expected scores of all rows, and covariances of the error for seen and unseen rows."""

    scores: Matrix = field(repr=False)
    seen: int  # the first rows; of the others no score has come
    doubt_seen: Matrix
    doubt_unseen: Matrix
    told: Matrix = field(repr=False)  # coefficients of the own columns, (columns, partners)
    trust: Matrix  # how what is left over enters, (partners, partners)

    @property
    def partners(self) -> int:
        """Partners whose scores came."""
        return int(self.scores.shape[1])

    def of_rows(self, A: Matrix, values: Matrix) -> Matrix:
        """Expected scores of other rows, given their own columns and received scores."""
        told = A @ self.told
        found: Matrix = told + (values - told) @ self.trust.T
        return found


def expect(A: Matrix, shares: Shares) -> Expected:
    """Regress scores on the own columns; of what is left, believe what exceeds the noise.

    `A` has a row for every row that is learnt from and a constant last column; its other columns
    have a mean square of about 1.
    """
    seen, partners = shares.values.shape
    variance, noise = shares.size**2, shares.noise_std**2
    told = _regressions(A[:seen], shares)
    left = shares.values - A[:seen] @ told
    left = left - left.mean(axis=0)
    covariance = left.T @ left / seen - np.diag(noise)
    # A sample covariance is off by about this much; the prior is that partners do not overlap.
    square = np.outer(variance, variance)
    by_chance = np.outer(noise + variance, noise + variance) * (1.0 + np.eye(partners)) / seen
    explained = (A @ told).var(axis=0)
    prior = np.diag(np.maximum(variance - explained, 0.1 * variance))
    found = prior + square / (square + by_chance) * (covariance - prior)
    values, basis = np.linalg.eigh((found + found.T) / 2.0)
    floor = _SMALLEST * float(variance.mean())
    unseen = (basis * np.maximum(values, floor)) @ basis.T
    trust = unseen @ np.linalg.inv(unseen + np.diag(noise))
    scores = A @ told
    scores[:seen] += left @ trust.T
    return Expected(
        scores=scores,
        seen=seen,
        doubt_seen=unseen - trust @ unseen,
        doubt_unseen=unseen,
        told=told,
        trust=trust,
    )


def _regressions(A: Matrix, shares: Shares) -> Matrix:
    """Ridge regression of each partner's scores on the own columns; the constant is free."""
    seen, columns = A.shape
    G, b = A.T @ A / seen, A.T @ shares.values / seen
    told = np.empty((columns, shares.values.shape[1]))
    for partner in range(told.shape[1]):
        variance = float(shares.size[partner]) ** 2
        off = float(shares.noise_std[partner]) ** 2 + variance
        ridge = np.full(columns, off * columns / (seen * _TOLD_SHARE * variance))
        ridge[-1] = off / (seen * variance) * 0.01
        told[:, partner] = np.linalg.solve(G + np.diag(ridge), b[:, partner])
    return told
