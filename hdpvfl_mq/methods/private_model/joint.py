"""The joint fit: the active party's columns and one coefficient for each partner.

It owns the design of that fit, with the uncertainty that noise leaves about every score. It does
not decide whether the fit is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.methods.private_model.coefficients import coefficient_prior
from hdpvfl_mq.methods.private_model.expectation import Expected
from hdpvfl_mq.methods.private_model.problem import Matrix, Problem, folds
from hdpvfl_mq.methods.private_model.row_blocks import filled

_ROUNDS = 3


def flattening(family: Family, doubt: FloatVector) -> FloatVector:
    """A divisor of theta: uncertainty about theta pulls probabilities towards one half."""
    return np.sqrt(1.0 + math.pi * doubt / 8.0) if family.is_logit else np.ones_like(doubt)


def lifting(family: Family, doubt: FloatVector) -> FloatVector:
    """How much uncertainty about theta raises the logarithm of a mean that is exp(theta)."""
    return doubt / 2.0 if family.is_log else np.zeros_like(doubt)


def averaged(family: Family, theta: FloatVector, doubt: FloatVector) -> FloatVector:
    """Theta of the mean label, averaged over an error of theta with the variance `doubt`.

    The fit models its rows this way, so a prediction from uncertain scores must do the same.
    """
    found: FloatVector = theta / flattening(family, doubt) + lifting(family, doubt)
    return found


@dataclass(frozen=True, kw_only=True)
class Joint:
    """The joint fit: coefficients are m + L a, so that a has a plain ridge."""

    m: FloatVector
    L: Matrix
    doubts: Doubts
    problem: Problem
    v: FloatVector  # the active party's columns, a, the constant

    @property
    def coefficients(self) -> FloatVector:
        """What each partner's scores are multiplied by."""
        found: FloatVector = self.m + self.L @ self.v[-1 - len(self.m) : -1]
        return found

    @classmethod
    def of(
        cls,
        alone: Problem,
        expected: Expected,
        *,
        dispersion: float,
        allocate: Allocate = np.empty,
        near: Joint | None = None,
    ) -> Joint:
        """Fit; `near` is the fit of more rows, whose uncertainty serves for some of them too."""
        prior = coefficient_prior(alone.X, *alone.null_slopes(allocate), expected)
        L: Matrix = np.linalg.cholesky(prior.covariance).astype(np.float64)
        each = np.full(expected.partners, dispersion)
        strengths = np.concatenate([alone.strengths[:-1], each, alone.strengths[-1:]])
        alone = replace(alone, strengths=strengths)
        v = None if near is None else near.v
        gamma = prior.mean if near is None else near.coefficients
        for _ in range(_ROUNDS if near is None else 1):
            doubts = Doubts.of(expected, gamma)
            problem = _design(alone, expected, m=prior.mean, L=L, doubts=doubts, allocate=allocate)
            v = problem.fit(v)
            found = cls(m=prior.mean, L=L, doubts=doubts, problem=problem, v=v)
            gamma = found.coefficients
        return found

    def losses(self, alone: Problem, expected: Expected) -> FloatVector:
        """The loss of other rows."""
        doubts = replace(self.doubts, seen=expected.seen)
        return _design(alone, expected, m=self.m, L=self.L, doubts=doubts).losses(self.v)


def validated(joint: Joint, alone: Problem, expected: Expected, dispersion: float) -> FloatVector:
    """Cross-validated losses of a joint fit.

    Each fold has its own prior of the coefficients: that prior reads labels, and one that has read
    the labels of held-out rows finds in noise the chance that these labels agree with it.
    """
    found = np.empty(len(alone.X))
    for held in folds(len(alone.X)):
        fit = Joint.of(alone.of(~held), expected.of(~held), dispersion=dispersion, near=joint)
        found[held] = fit.losses(alone.of(held), expected.of(held))
    return found


def _design(
    alone: Problem,
    expected: Expected,
    *,
    m: FloatVector,
    L: Matrix,
    doubts: Doubts,
    allocate: Allocate = np.empty,
) -> Problem:
    """The columns of `alone` and the scores times L, flattened by what is uncertain about theta."""
    A, H, family = alone.X, expected.scores, alone.labels.family

    def design(rows: slice) -> Matrix:
        c = flattening(family, doubts.of_rows(rows))[:, None]
        return np.hstack([A[rows, :-1] / c, H[rows] @ L / c, A[rows, -1:] / c])

    def offset(rows: slice) -> FloatVector:
        doubt = doubts.of_rows(rows)
        found: FloatVector = H[rows] @ m / flattening(family, doubt)
        return found + lifting(family, doubt)

    X = filled((len(A), A.shape[1] + expected.partners), design, allocate)
    return replace(alone, X=X, given=filled((len(A),), offset, allocate))


@dataclass(frozen=True)
class Doubts:
    """Variance of the error of theta: one number for rows with received scores, one for others."""

    seen: int
    with_scores: float
    without: float

    @classmethod
    def of(cls, expected: Expected, gamma: FloatVector) -> Doubts:
        with_scores = max(float(gamma @ expected.doubt_seen @ gamma), 0.0)
        without = max(float(gamma @ expected.doubt_unseen @ gamma), 0.0)
        return cls(expected.seen, with_scores, without)

    def of_rows(self, rows: slice) -> FloatVector:
        doubt = np.full(rows.stop - rows.start, self.without)
        doubt[: max(0, self.seen - rows.start)] = self.with_scores
        return doubt
