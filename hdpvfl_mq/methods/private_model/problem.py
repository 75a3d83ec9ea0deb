"""A penalised fit of the active party: labels, a design, its minimiser and cross-validation.

It owns one fit at given strengths, in memory or block by block; it knows no partner and no noise.
None of it leaves the party that holds the labels.
"""

from __future__ import annotations

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
from hdpvfl_mq.methods.private_model.row_blocks import BLOCK_ROWS, summed

Matrix = NDArray[np.float64]

FREE = 1e-9  # the strength of the constant
_FOLDS = 5
_TOLERANCE = 1e-9


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

    def fit(self, start: FloatVector | None = None) -> FloatVector:
        """The minimiser; of many rows, block by block. A start nearby saves steps."""
        objective = InBlocks(self) if self._is_on_disk else self.objective
        return newton(objective, tolerance=_TOLERANCE, start=start)

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

    def dispersion(self, w: FloatVector) -> float:
        """Mean square of the residual over its mean slope: 1 where the loss is a likelihood."""
        objective, response = self.objective, self.labels.response
        own = objective.block.scores(objective.rows, w)
        h = response.residual(objective.rows, own, self.given).expose()
        slope = response.curvature(objective.rows, own, self.given).expose()
        found = float(np.mean(h**2)) / max(float(np.mean(slope)), 1e-12)
        return min(max(found, 1e-6), 1e12)

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

    def validated(self, start: FloatVector | None = None) -> FloatVector:
        """Cross-validated losses."""
        found = np.empty(len(self.X))
        for held in folds(len(self.X)):
            found[held] = self.of(held).losses(self.of(~held).fit(start))
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


def _held(X: Matrix, engine: Engine) -> Rows:
    """A design where the engine can compute with it; one of this process stays where it is."""
    if X.size <= CHUNK_NUMBERS or isinstance(engine, LocalEngine):
        return LocalRows(np.require(X, requirements="C"))
    rows = engine.allocate_rows((X.shape[0], X.shape[1]), X.dtype)
    rows.X[:] = X
    return rows


def folds(rows: int) -> Iterator[NDArray[np.bool_]]:
    """The held-out rows of every fold; rows are sorted by a hash, so a fold is every fifth row."""
    for fold in range(_FOLDS):
        held = np.zeros(rows, dtype=np.bool_)
        held[fold::_FOLDS] = True
        yield held
