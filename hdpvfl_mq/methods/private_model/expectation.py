"""The active party's estimate of its partners' exact scores: regression calibration.

It owns the conditional mean of exact scores given the active party's columns and the received
scores, and the remaining uncertainty; it sees no label. Scores have a known standard deviation
(`size`, from released statistics). They have known noise, or they are exact but known for some rows
only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate, chunks
from hdpvfl_mq.methods.private_model.row_blocks import BLOCK_ROWS, filled, summed
from hdpvfl_mq.methods.private_model.row_blocks import variance as variance_of

Matrix = NDArray[np.float64]

# Prior mean and deviation of the share of a score's variance that the active party's columns
# explain, and the range that an estimate may have.
_EXPLAINED_SHARE, _EXPLAINED_STD = 0.2, 0.3
_EXPLAINED_RANGE = (0.02, 0.97)
# Prior mean and deviation of the correlation of two partners' scores beyond those columns.
_OVERLAP, _OVERLAP_STD = 0.3, 0.1
_SMALLEST = 0.03


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Received scores of all partners, in party order, for the first rows, in units of theta."""

    values: Matrix = field(repr=False)  # (seen rows, partners)
    noise_std: Matrix  # one per partner; 0 if its scores are exact
    size: Matrix  # standard deviation of each partner's scores


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Expected scores of all rows, and covariances of the error for seen and unseen rows."""

    scores: Matrix = field(repr=False)
    shares: Shares = field(repr=False)  # as received
    seen: int  # the first rows; no scores were received for the others
    doubt_seen: Matrix
    doubt_unseen: Matrix
    slopes: Matrix = field(repr=False)  # coefficients of A, (columns, partners)
    trust: Matrix  # weights of the unexplained part of scores, (partners, partners)

    @property
    def partners(self) -> int:
        """Number of partners whose scores were received."""
        return int(self.scores.shape[1])

    def of(self, rows: slice | NDArray[np.bool_]) -> Expected:
        """The expected scores of some of the rows, which are the first ones or a choice of all."""
        values = self.shares.values[rows if isinstance(rows, slice) else rows[: self.seen]]
        shares = replace(self.shares, values=values)
        return replace(self, scores=self.scores[rows], shares=shares, seen=len(values))

    def of_rows(self, A: Matrix, values: Matrix) -> Matrix:
        """Expected scores of other rows, given their columns and received scores."""
        explained = A @ self.slopes
        found: Matrix = explained + (values - explained) @ self.trust.T
        return found


def expect(A: Matrix, shares: Shares, allocate: Allocate = np.empty) -> Expected:
    """Regress scores on the active party's columns; of the rest, trust the part above the noise.

    `A` has a row for every training row and a constant last column; its other columns have a mean
    square of about 1. `allocate` makes the array of expected scores.
    """
    seen, partners = shares.values.shape
    noise = np.diag(shares.noise_std**2)
    slopes = _regressions(A[:seen], shares)
    received = shares.values

    def raw(rows: slice) -> Matrix:
        found: Matrix = received[rows] - A[:seen][rows] @ slopes
        return found

    mean = summed(seen, lambda rows: raw(rows).sum(axis=0)) / seen

    def square_of_left(rows: slice) -> Matrix:
        left = raw(rows) - mean
        found: Matrix = left.T @ left
        return found

    moments = summed(seen, square_of_left) / seen
    explained = variance_of(len(A), lambda rows: A[rows] @ slopes)
    variance = np.maximum(shares.size**2 - explained, 0.1 * shares.size**2)
    unseen = _covariance(moments, seen, variance, shares.noise_std**2)
    trust = unseen @ np.linalg.inv(unseen + noise)
    scores = filled((len(A), partners), lambda rows: A[rows] @ slopes, allocate)
    for rows in chunks(seen, BLOCK_ROWS):
        scores[rows] += (raw(rows) - mean) @ trust.T
    return Expected(
        scores=scores,
        shares=shares,
        seen=seen,
        doubt_seen=unseen - trust @ unseen,
        doubt_unseen=unseen,
        slopes=slopes,
        trust=trust,
    )


def _regressions(A: Matrix, shares: Shares) -> Matrix:
    """Ridge regression of each partner's scores on A; the constant is not penalised.

    The ridge follows from the share of variance that A explains, which is estimated first: a fixed
    ridge would hide most of a score that repeats the active party's columns.
    """
    seen, columns = A.shape
    G = summed(seen, lambda rows: A[rows].T @ A[rows]) / seen
    b = summed(seen, lambda rows: A[rows].T @ shares.values[rows]) / seen
    inverse, rank = np.linalg.pinv(G, rcond=1e-9, hermitian=True), np.linalg.matrix_rank(G)
    slopes = np.empty((columns, shares.values.shape[1]))
    for partner in range(slopes.shape[1]):
        variance = float(shares.size[partner]) ** 2
        off = float(shares.noise_std[partner]) ** 2 + variance
        fitted = float(b[:, partner] @ inverse @ b[:, partner]) / variance
        share = _explained_share(fitted, off / variance, int(rank), seen)
        ridge = np.full(columns, off * columns / (seen * share * variance))
        ridge[-1] = off / (seen * variance) * 0.01
        slopes[:, partner] = np.linalg.solve(G + np.diag(ridge), b[:, partner])
    return slopes


def _explained_share(fitted: float, off: float, rank: int, rows: int) -> float:
    """The share of variance that A explains: the fitted share without what chance fits.

    `off` is the variance of a received score in units of an exact one's. With few rows for each
    column the fit says nothing, and the share is the prior's.
    """
    if 2 * rank > rows:
        return _EXPLAINED_SHARE
    found = fitted - off * rank / rows
    error = math.sqrt(2.0 * rank) * off / rows + 2.0 * math.sqrt(off * max(found, 0.1) / rows)
    return min(
        max(_posterior(found, error, _EXPLAINED_SHARE, _EXPLAINED_STD), _EXPLAINED_RANGE[0]),
        _EXPLAINED_RANGE[1],
    )


def _covariance(moments: Matrix, rows: int, variance: Matrix, noise: Matrix) -> Matrix:
    """Covariance of the partners' scores beyond the active party's columns.

    `moments` is the sample covariance of what the columns leave unexplained of `rows` rows.

    One pair's is lost in the noise; the mean correlation of all pairs is not. It is estimated
    first, then each entry moves from there by what the rows say of it.
    """
    partners = len(variance)
    found = moments - np.diag(noise)
    scale = np.outer(np.sqrt(variance), np.sqrt(variance))
    # The approximate error of an entry of a sample covariance, in units of `scale`.
    ratio = 1.0 + noise / variance
    error = np.sqrt(np.outer(ratio, ratio) * (1.0 + np.eye(partners)) / rows)
    overlap = _overlap(found / scale, error)
    prior = overlap + (1.0 - overlap) * np.eye(partners)
    moved = prior + _OVERLAP_STD**2 / (_OVERLAP_STD**2 + error**2) * (found / scale - prior)
    values, basis = np.linalg.eigh(scale * (moved + moved.T) / 2.0)
    floor = _SMALLEST * float(variance.mean())
    covariance: Matrix = (basis * np.maximum(values, floor)) @ basis.T
    return covariance


def _overlap(correlation: Matrix, error: Matrix) -> float:
    """The mean correlation of two partners, shrunk to its prior."""
    partners = len(correlation)
    if partners < 2:
        return 0.0
    pairs = np.triu_indices(partners, 1)
    precision = error[pairs] ** -2
    mean = float(precision @ correlation[pairs] / precision.sum())
    found = _posterior(mean, float(precision.sum()) ** -0.5, _OVERLAP, _OVERLAP_STD)
    return min(max(found, -0.5 / (partners - 1)), 0.95)


def _posterior(found: float, error: float, mean: float, std: float) -> float:
    """The mean of a Gaussian estimate and a Gaussian prior."""
    weight = std**2 / (std**2 + error**2)
    return mean + weight * (found - mean)
