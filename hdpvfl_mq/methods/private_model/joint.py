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
from hdpvfl_mq.methods.private_model.problem import Matrix, Problem
from hdpvfl_mq.methods.private_model.row_blocks import filled

_ROUNDS = 3


def flattening(family: Family, doubt: FloatVector) -> FloatVector:
    """A divisor of theta: uncertainty about theta pulls probabilities towards one half."""
    return np.sqrt(1.0 + math.pi * doubt / 8.0) if family.is_logit else np.ones_like(doubt)


def lifting(family: Family, doubt: FloatVector) -> FloatVector:
    """How much uncertainty about theta raises the logarithm of a mean that is exp(theta)."""
    return doubt / 2.0 if family.is_log else np.zeros_like(doubt)


@dataclass(frozen=True, kw_only=True)
class Joint:
    """The joint fit: coefficients are m + L a, so that a has a plain ridge."""

    problem: Problem
    v: FloatVector
    L: Matrix
    coefficients: FloatVector

    @classmethod
    def of(
        cls,
        A: Matrix,
        alone: Problem,
        expected: Expected,
        *,
        dispersion: float,
        allocate: Allocate,
    ) -> Joint:
        partners, family = expected.partners, alone.labels.family
        prior = coefficient_prior(A, *alone.null_slopes(allocate), expected)
        m, spread = prior.mean, prior.covariance
        L: Matrix = np.linalg.cholesky(spread).astype(np.float64)
        each = np.full(partners, dispersion)
        strengths = np.concatenate([alone.strengths[:-1], each, alone.strengths[-1:]])
        gamma, H = m, expected.scores
        for _ in range(_ROUNDS):
            doubts = _Doubts.of(expected, gamma)

            def design(rows: slice, doubts: _Doubts = doubts) -> Matrix:
                c = flattening(family, doubts.of_rows(rows))[:, None]
                return np.hstack([A[rows, :-1] / c, H[rows] @ L / c, A[rows, -1:] / c])

            def offset(rows: slice, doubts: _Doubts = doubts) -> FloatVector:
                doubt = doubts.of_rows(rows)
                found: FloatVector = H[rows] @ m / flattening(family, doubt)
                return found + lifting(family, doubt)

            X = filled((len(A), A.shape[1] + partners), design, allocate)
            given = filled((len(A),), offset, allocate)
            problem = replace(alone, X=X, strengths=strengths, given=given)
            v = problem.fit()
            gamma = m + L @ v[A.shape[1] - 1 : -1]
        return cls(problem=problem, v=v, L=L, coefficients=gamma)


@dataclass(frozen=True)
class _Doubts:
    """Variance of the error of theta: one number for rows with received scores, one for others."""

    seen: int
    with_scores: float
    without: float

    @classmethod
    def of(cls, expected: Expected, gamma: FloatVector) -> _Doubts:
        with_scores = max(float(gamma @ expected.doubt_seen @ gamma), 0.0)
        without = max(float(gamma @ expected.doubt_unseen @ gamma), 0.0)
        return cls(expected.seen, with_scores, without)

    def of_rows(self, rows: slice) -> FloatVector:
        doubt = np.full(rows.stop - rows.start, self.without)
        doubt[: max(0, self.seen - rows.start)] = self.with_scores
        return doubt
