"""The active party's last fit: its own columns and one coefficient for each partner.

It owns that fit, its cross-validation and the choice whether to use partners at all; it knows noise
by its standard deviation only. All of it is post-processing by the party that holds the labels.
None of it leaves that party, so the rows of its columns are not scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.engine.port import Engine, LocalEngine, LocalRows, Rows
from hdpvfl_mq.glm.block import CHUNK_NUMBERS, ColumnBlock
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import Objective, newton
from hdpvfl_mq.methods.private_model.coefficients import coefficient_prior
from hdpvfl_mq.methods.private_model.expectation import Expected
from hdpvfl_mq.methods.private_model.row_blocks import BLOCK_ROWS, filled, summed

Matrix = NDArray[np.float64]

# Ridge strengths for the active party's columns, in rows; cross-validation chooses one.
_RIDGES = (0.5, 5.0, 50.0)
FREE = 1e-9  # the strength of the constant
_FOLDS = 5
# The fit uses partners unless cross-validation is worse with them by more than this many standard
# errors. Noised scores show only part of the gain of exact scores, so a tie favours partners.
_DOUBT = 1.0
# If the plan forecasts that noise leaves less than this share of the partners' signal, their scores
# must first prove better by so many standard errors.
_FORECAST, _PROOF = 0.1, 2.0
_ROWS_TO_VALIDATE = 50_000
_TOLERANCE = 1e-9
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels, sample weights and offsets of rows, as in the data."""

    family: Family
    y: FloatVector = field(repr=False)
    weights: FloatVector | None = field(default=None, repr=False)
    offset: FloatVector | None = field(default=None, repr=False)

    def of(self, rows: slice | NDArray[np.bool_]) -> Labels:
        """The labels of some rows."""
        return replace(
            self,
            y=self.y[rows],
            weights=None if self.weights is None else self.weights[rows],
            offset=None if self.offset is None else self.offset[rows],
        )

    @property
    def response(self) -> Response:
        """The labels in the form that the solver needs."""
        return Response(self.family, self.y, weights=self.weights, offset=self.offset)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A design whose last column is the constant, an offset, and a strength for every column."""

    X: Matrix = field(repr=False)
    labels: Labels = field(repr=False)
    strengths: FloatVector = field(repr=False)
    given: FloatVector = field(repr=False)
    engine: Engine = field(default_factory=LocalEngine, repr=False)

    def of(self, rows: slice | NDArray[np.bool_]) -> Problem:
        """The same problem for some of the rows."""
        return replace(self, X=self.X[rows], labels=self.labels.of(rows), given=self.given[rows])

    @property
    def objective(self) -> Objective:
        """The solver's objective; the strengths are in rows."""
        return Objective(
            block=ColumnBlock(_held(self.X, self.engine), intercept=True),
            response=self.labels.response,
            strengths=self.strengths / len(self.X),
            received=self.given,
        )

    def fit(self) -> FloatVector:
        """The minimiser; of many rows, block by block."""
        objective = InBlocks(self) if self._is_on_disk else self.objective
        return newton(objective, tolerance=_TOLERANCE)

    @property
    def _is_on_disk(self) -> bool:
        """Whether the design is mapped and would not fit memory; other engines copy it anyway."""
        is_mapped = isinstance(self.X, np.memmap) and isinstance(self.engine, LocalEngine)
        return is_mapped and len(self.X) > BLOCK_ROWS

    def losses(self, w: FloatVector) -> FloatVector:
        """The loss of every row."""
        objective = self.objective
        own = objective.block.scores(objective.rows, w)
        return self.labels.response.loss(objective.rows, own, self.given).expose()

    def covariance(self, w: FloatVector, dispersion: float) -> Matrix:
        """The inverse of the penalised curvature: how uncertain w is."""
        objective = InBlocks(self) if self._is_on_disk else self.objective
        H = objective.hessian(w) + np.diag(objective.strengths)
        found: Matrix = np.linalg.pinv(H, hermitian=True) * dispersion / len(self.X)
        return found

    def null_slopes(self, allocate: Allocate) -> tuple[FloatVector, float]:
        """Descent direction of every row's loss at the best constant, and the mean curvature."""
        null = replace(self, X=self.X[:, -1:], strengths=self.strengths[-1:])
        w, direction = null.fit(), allocate((len(self.X),), np.float64)

        def slopes(rows: slice) -> Matrix:
            part = null.of(rows)
            objective, response = part.objective, part.labels.response
            own = objective.block.scores(objective.rows, w)
            direction[rows] = -response.residual(objective.rows, own, part.given).expose()
            slope = response.curvature(objective.rows, own, part.given).expose()
            return np.asarray(slope.sum())

        return direction, float(summed(len(self.X), slopes)) / len(self.X)

    def validated(self) -> FloatVector:
        """Cross-validated losses; rows are sorted by a hash, so every fifth row makes a fold."""
        found = np.empty(len(self.X))
        for held in _folds(len(self.X)):
            found[held] = self.of(held).losses(self.of(~held).fit())
        return found


class InBlocks:
    """The objective of a problem with many rows, as sums over blocks of rows."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._rows = problem, len(problem.X)
        self.strengths = problem.strengths / self._rows
        self.columns = int(problem.X.shape[1])

    def gradient(self, w: FloatVector) -> FloatVector:
        """Gradient of the mean loss and the penalty."""
        return self._mean(lambda block: block.loss_gradient(w)) + self.strengths * w

    def hessian(self, w: FloatVector) -> Matrix:
        """Curvature of the mean loss."""
        return self._mean(lambda block: block.hessian(w))

    def slope_along(self, w: FloatVector, d: FloatVector) -> Callable[[float], float]:
        """The derivative of the mean loss at w + t d along d, as a function of t."""
        return lambda t: float(self._mean(lambda block: np.asarray(block.slope_along(w, d)(t))))

    def _mean(self, formula: Callable[[Objective], Matrix]) -> Matrix:
        def weighed(rows: slice) -> Matrix:
            share = (rows.stop - rows.start) / self._rows
            return np.asarray(formula(self._problem.of(rows).objective) * share)

        return summed(self._rows, weighed)


@dataclass(frozen=True, kw_only=True)
class LastFit:
    """The active party's final model: theta = A w + sum of coefficients times scores."""

    w: FloatVector = field(repr=False)
    w_std: FloatVector = field(repr=False)
    coefficients: FloatVector
    coefficient_std: FloatVector
    is_joint: bool
    gain: float  # cross-validated fall of the mean loss due to partners; gain_std is its error
    gain_std: float
    loss: float  # cross-validated


def _held(X: Matrix, engine: Engine) -> Rows:
    """A design where the engine can compute with it; one of this process stays where it is."""
    if X.size <= CHUNK_NUMBERS or isinstance(engine, LocalEngine):
        return LocalRows(np.require(X, requirements="C"))
    rows = engine.room((X.shape[0], X.shape[1]), X.dtype)
    rows.X[:] = X
    return rows


def last_fit(
    A: Matrix,
    labels: Labels,
    expected: Expected | None,
    engine: Engine | None = None,
    *,
    allocate: Allocate = np.empty,
    forecast: float = 1.0,
) -> LastFit:
    """Fit with and without partners and keep the fit that cross-validation prefers.

    `A` ends with the constant; its columns are first scaled to a mean square of 1. `allocate` makes
    every array with a row for each row of `A`. `forecast` is the share of the partners' signal that
    noise leaves, from public numbers.
    """
    scale, unscaled = column_scale(A), A
    A = filled(A.shape, lambda rows: unscaled[rows] / scale, allocate)
    some = slice(0, min(len(A), _ROWS_TO_VALIDATE))
    alone, dispersion = _own_ridge(A, labels, some, engine or LocalEngine(), allocate)
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
    joint = _Joint.of(A, alone, expected, dispersion=dispersion, allocate=allocate)
    fall = losses - joint.problem.of(some).validated()
    # On rows without received scores both fits see only A.
    judged = fall[: expected.seen]
    gain, gain_std = float(judged.mean()), float(judged.std() / math.sqrt(len(judged)))
    kept = replace(kept, gain=gain, gain_std=gain_std)
    if gain < (-_DOUBT if forecast >= _FORECAST else _PROOF) * gain_std:
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
    """The root mean square of every column, 1 for a column of zeros."""
    squares = summed(len(A), lambda rows: np.sum(A[rows] ** 2, axis=0))
    scale: FloatVector = np.sqrt(squares / len(A))
    return np.where(scale > 0.0, scale, 1.0)


def flattening(family: Family, doubt: FloatVector) -> FloatVector:
    """A divisor of theta: uncertainty about theta pulls probabilities towards one half."""
    return np.sqrt(1.0 + math.pi * doubt / 8.0) if family.is_logit else np.ones_like(doubt)


def lifting(family: Family, doubt: FloatVector) -> FloatVector:
    """How much uncertainty about theta raises the logarithm of a mean that is exp(theta)."""
    return doubt / 2.0 if family.is_log else np.zeros_like(doubt)


def _own_ridge(
    A: Matrix, labels: Labels, some: slice, engine: Engine, allocate: Allocate
) -> tuple[Problem, float]:
    """The fit without partners at the ridge that cross-validation prefers, and the dispersion.

    Losses are negative log-likelihoods up to a factor; the dispersion is that factor, so that
    strengths in rows mean the same for every loss.
    """

    def at(ridge: float) -> Problem:
        strengths = np.append(np.full(A.shape[1] - 1, ridge), FREE)
        return Problem(X=A, labels=labels, strengths=strengths, given=nothing, engine=engine)

    nothing = filled((len(A),), lambda rows: np.zeros(rows.stop - rows.start), allocate)
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
    def of(
        cls,
        A: Matrix,
        alone: Problem,
        expected: Expected,
        *,
        dispersion: float,
        allocate: Allocate,
    ) -> _Joint:
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


def _folds(rows: int) -> Iterator[NDArray[np.bool_]]:
    for fold in range(_FOLDS):
        held = np.zeros(rows, dtype=np.bool_)
        held[fold::_FOLDS] = True
        yield held
