"""The active party's last fit: its own columns and one coefficient for each partner.

It owns that fit, its cross-validation and the choice whether partners enter at all; it knows noise
by its deviation only. All of it is post-processing by the party that holds the labels. Nothing of
it leaves, so the own columns are not scaled by rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import Objective, newton
from hdpvfl_mq.methods.private_model.expectation import Expected

Matrix = NDArray[np.float64]

# Prior of a coefficient: this mean with one partner, less with more, since partners overlap; a part
# of its deviation is common to all of them.
_OVERLAP = 0.5
_COMMON_STD, _OWN_STD = 0.3, 0.15
# With fewer rows coefficients stay where the prior puts them.
_ROWS_TO_LEARN = 2000
_FIXED_STD = 1e-3
# Strengths of the own ridge, in rows; cross-validation chooses.
_RIDGES = (0.5, 5.0, 50.0)
_FREE = 1e-9
_FOLDS = 5
# Partners enter unless cross-validation speaks against them by more than so many standard errors.
# Scores in the fit are noised and show little of what exact ones bring, so a tie is for them.
_DOUBT = 1.0
_ROWS_TO_VALIDATE = 50_000
_TOLERANCE = 1e-9
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What a row brings besides its columns, as in the data."""

    family: Family
    y: FloatVector = field(repr=False)
    weights: FloatVector | None = field(default=None, repr=False)
    offset: FloatVector | None = field(default=None, repr=False)

    def of(self, rows: slice | NDArray[np.bool_]) -> Labels:
        """Those of some rows."""
        return replace(
            self,
            y=self.y[rows],
            weights=None if self.weights is None else self.weights[rows],
            offset=None if self.offset is None else self.offset[rows],
        )

    @property
    def response(self) -> Response:
        """As the solver takes them."""
        return Response(self.family, self.y, weights=self.weights, offset=self.offset)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A design whose last column is the constant, an offset, and a strength for every column."""

    X: Matrix = field(repr=False)
    labels: Labels = field(repr=False)
    strengths: FloatVector = field(repr=False)
    given: FloatVector = field(repr=False)

    def of(self, rows: slice | NDArray[np.bool_]) -> Problem:
        """The same for some of the rows."""
        return replace(self, X=self.X[rows], labels=self.labels.of(rows), given=self.given[rows])

    @property
    def objective(self) -> Objective:
        """What the solver minimises: the strengths are in rows."""
        return Objective(
            block=ColumnBlock(np.ascontiguousarray(self.X), intercept=True),
            response=self.labels.response,
            strengths=self.strengths / len(self.X),
            received=self.given,
        )

    def fit(self) -> FloatVector:
        """The minimiser."""
        return newton(self.objective, tolerance=_TOLERANCE)[0]

    def losses(self, w: FloatVector) -> FloatVector:
        """The loss of every row."""
        objective = self.objective
        own = objective.block.scores(objective.rows, w)
        return self.labels.response.loss(objective.rows, own, self.given).expose()

    def covariance(self, w: FloatVector, dispersion: float) -> Matrix:
        """The inverse of the penalised curvature: how uncertain w is."""
        objective = self.objective
        own = objective.block.scores(objective.rows, w)
        slope = self.labels.response.curvature(objective.rows, own, self.given)
        H = objective.block.gram(objective.rows, slope) + np.diag(objective.strengths)
        found: Matrix = np.linalg.pinv(H, hermitian=True) * dispersion / len(self.X)
        return found

    def validated(self) -> FloatVector:
        """Cross-validated losses; rows are in the order of a hash, so every fifth is a fold."""
        found = np.empty(len(self.X))
        for held in _folds(len(self.X)):
            found[held] = self.of(held).losses(self.of(~held).fit())
        return found


@dataclass(frozen=True, kw_only=True)
class LastFit:
    """What the active party keeps: theta = A w + sum of coefficients times scores."""

    w: FloatVector = field(repr=False)
    w_std: FloatVector = field(repr=False)
    coefficients: FloatVector
    coefficient_std: FloatVector
    is_joint: bool
    gain: float  # cross-validated fall of the mean loss by the partners, and its standard error
    gain_std: float
    loss: float  # cross-validated


def last_fit(A: Matrix, labels: Labels, expected: Expected | None) -> LastFit:
    """Fit with and without partners and keep what cross-validation prefers.

    `A` ends with the constant; its columns are brought to a mean square of 1 first.
    """
    scale = column_scale(A)
    A = A / scale
    some = slice(0, min(len(A), _ROWS_TO_VALIDATE))
    alone, dispersion = _own_ridge(A, labels, some)
    w = alone.fit()
    losses = alone.of(some).validated()
    std = np.sqrt(np.diag(alone.covariance(w, dispersion)))
    partners = 0 if expected is None else expected.partners
    none = np.zeros(partners)
    kept = LastFit(
        w=w / scale,
        w_std=std / scale,
        coefficients=none,
        coefficient_std=none,
        is_joint=False,
        gain=0.0,
        gain_std=0.0,
        loss=float(losses.mean()),
    )
    if expected is None or partners == 0:
        return kept
    joint = _Joint.of(A, alone, expected, dispersion)
    fall = losses - joint.problem.of(some).validated()
    # Where no score has come, both fits see the own columns only.
    judged = fall[: expected.seen]
    gain, gain_std = float(judged.mean()), float(judged.std() / math.sqrt(len(judged)))
    kept = replace(kept, gain=gain, gain_std=gain_std)
    if gain < -_DOUBT * gain_std:
        return kept
    covariance = joint.problem.covariance(joint.v, dispersion)
    d = A.shape[1] - 1
    spread = joint.L @ covariance[d:-1, d:-1] @ joint.L.T
    own = np.append(np.diag(covariance)[:d], covariance[-1, -1])
    return replace(
        kept,
        w=np.append(joint.v[:d], joint.v[-1]) / scale,
        w_std=np.sqrt(own) / scale,
        coefficients=joint.coefficients,
        coefficient_std=np.sqrt(np.diag(spread)),
        is_joint=True,
        loss=float((losses - fall).mean()),
    )


def column_scale(A: Matrix) -> FloatVector:
    """The root mean square of every column, 1 where it is empty."""
    scale: FloatVector = np.sqrt(np.mean(A**2, axis=0))
    return np.where(scale > 0.0, scale, 1.0)


def flattening(family: Family, doubt: FloatVector) -> FloatVector:
    """By how much doubt about theta pulls probabilities to one half, as a divisor of theta."""
    return np.sqrt(1.0 + math.pi * doubt / 8.0) if family.is_logit else np.ones_like(doubt)


def lifting(family: Family, doubt: FloatVector) -> FloatVector:
    """By how much doubt about theta raises the logarithm of a mean that is exp(theta)."""
    return doubt / 2.0 if family.is_log else np.zeros_like(doubt)


def prior_mean(partners: int) -> float:
    """What a coefficient is expected to be."""
    return 1.0 / (1.0 + _OVERLAP * (partners - 1))


def _own_ridge(A: Matrix, labels: Labels, some: slice) -> tuple[Problem, float]:
    """The fit without partners at the ridge that cross-validation prefers, and the dispersion.

    Losses are likelihoods up to a factor; the dispersion is that factor, so that strengths in rows
    mean the same for all of them.
    """

    def at(ridge: float) -> Problem:
        strengths = np.append(np.full(A.shape[1] - 1, ridge), _FREE)
        return Problem(X=A, labels=labels, strengths=strengths, given=np.zeros(len(A)))

    first = at(_RIDGES[0]).of(some)
    dispersion = _dispersion(first, first.fit())
    tried = {ridge: float(at(ridge * dispersion).of(some).validated().mean()) for ridge in _RIDGES}
    best = min(tried, key=lambda ridge: (tried[ridge], ridge))
    return at(best * dispersion), dispersion


def _dispersion(problem: Problem, w: FloatVector) -> float:
    """Mean square of the residual over its mean slope: 1 where the loss is a likelihood."""
    objective = problem.objective
    own = objective.block.scores(objective.rows, w)
    h = problem.labels.response.residual(objective.rows, own, problem.given).expose()
    slope = problem.labels.response.curvature(objective.rows, own, problem.given).expose()
    found = float(np.mean(h**2)) / max(float(np.mean(slope)), 1e-12)
    return min(max(found, 1e-6), 1e12)


@dataclass(frozen=True, kw_only=True)
class _Joint:
    """The joint fit: coefficients are m + L a, so that a has a plain ridge."""

    problem: Problem
    v: FloatVector
    L: Matrix
    coefficients: FloatVector

    @classmethod
    def of(cls, A: Matrix, alone: Problem, expected: Expected, dispersion: float) -> _Joint:
        partners, family = expected.partners, alone.labels.family
        m = np.full(partners, prior_mean(partners))
        own_std = _OWN_STD if len(A) >= _ROWS_TO_LEARN else _FIXED_STD
        common = _COMMON_STD if len(A) >= _ROWS_TO_LEARN else _FIXED_STD
        spread = common**2 + own_std**2 * np.eye(partners)
        L: Matrix = np.linalg.cholesky(spread).astype(np.float64)
        prior = np.full(partners, dispersion)
        strengths = np.concatenate([alone.strengths[:-1], prior, alone.strengths[-1:]])
        gamma, H = m, expected.scores
        for _ in range(_ROUNDS):
            doubt = _row_doubt(expected, gamma)
            c = flattening(family, doubt)[:, None]
            X = np.hstack([A[:, :-1] / c, H @ L / c, A[:, -1:] / c])
            given = H @ m / c[:, 0] + lifting(family, doubt)
            problem = Problem(X=X, labels=alone.labels, strengths=strengths, given=given)
            v = problem.fit()
            gamma = m + L @ v[A.shape[1] - 1 : -1]
        return cls(problem=problem, v=v, L=L, coefficients=gamma)


def _row_doubt(expected: Expected, gamma: FloatVector) -> FloatVector:
    doubt = np.full(len(expected.scores), max(float(gamma @ expected.doubt_unseen @ gamma), 0.0))
    doubt[: expected.seen] = max(float(gamma @ expected.doubt_seen @ gamma), 0.0)
    return doubt


def _folds(rows: int) -> Iterator[NDArray[np.bool_]]:
    for fold in range(_FOLDS):
        held = np.zeros(rows, dtype=np.bool_)
        held[fold::_FOLDS] = True
        yield held
