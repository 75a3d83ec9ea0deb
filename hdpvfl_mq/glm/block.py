"""One party's columns of the common rows, ready for rounds: scores out, gradient in.

It owns row scaling, the intercept column and the products with the columns; it knows no ids,
labels or files. A block is float64 in memory, or float32 in a mapped file, which is widened chunk
by chunk: the arithmetic is float64 on the numbers as stored. An engine computes the products of the
chunks; they are folded here, in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.engine.port import Engine, Kernel, LocalEngine, LocalRows, Matrix, Rows
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.glm.reorder import ordered_rows

# Numbers multiplied at a time: 8 MiB of float64.
CHUNK_NUMBERS = 2**20
# Numbers scaled at a time: the results of each step stay in the processor's cache.
_SCALED_NUMBERS = 2**16
# Columns summed in one product: a score then has at most 4096 + columns / 4096 rounding errors.
_PART_COLUMNS = 4096
# How far rounding can separate the scores of one row in two runs, per unit norm of the weights.
# *Bound*: twice 2^-53 for each of the roundings above, with up to 10^6 columns.
SCORE_ROUNDING = 2.0**-39
# Rounding to float32 may lengthen a row by 2**-24 of its norm; this keeps it in the unit ball.
_FLOAT32_SHRINK = 1.0 - 2.0**-23


def scale_rows(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """x / max(1, |x|), row by row.

    *Bound*: every row has norm at most 1, even if the square of an entry overflows.
    """
    scaled = np.array(X, dtype=np.float64, order="C")
    _scale(scaled, np.empty_like(scaled))
    return scaled


def _scale(X: NDArray[np.float64], spare: NDArray[np.float64]) -> None:
    """Scale rows in place. New arrays for every step would take five times as long: their pages."""
    peak = np.maximum(1.0, np.abs(X, out=spare).max(axis=1, initial=0.0))[:, None]
    np.divide(X, peak, out=X)
    norm = np.sqrt(np.square(X, out=spare).sum(axis=1))[:, None]
    np.divide(X, np.maximum(1.0 / peak, norm), out=X)


class ColumnBlock:
    """Aligned rows of one party; the active party has an intercept as its last column."""

    def __init__(self, X: Matrix | Rows, *, intercept: bool = False) -> None:
        rows = LocalRows(np.require(X, requirements="C")) if isinstance(X, np.ndarray) else X
        self._X = rows.X
        if self._X.ndim != 2 or self._X.dtype not in (np.float64, np.float32):
            raise DataError("a block is a two-dimensional array of float64 or float32")
        if self._X.shape[1] == 0:
            raise DataError("a block has no column")
        self._rows = rows
        self.intercept = intercept

    @classmethod
    def align(
        cls,
        X: Matrix,
        order: NDArray[np.int64],
        *,
        intercept: bool = False,
        scaled: bool = True,
        allocate: Allocate = np.empty,
        engine: Engine | None = None,
    ) -> ColumnBlock:
        """Take rows of X in the given order, scale them, append the intercept.

        With an intercept a scaled row is (x, 1) / sqrt(2). The block has the dtype of X and is
        stored where the engine's workers can read it.
        """
        columns = X.shape[1] + int(intercept)
        held = (engine or LocalEngine(allocate)).allocate_rows((len(order), columns), X.dtype)
        block, mapped = held.X, isinstance(X, np.memmap)
        space = np.empty((2, max(1, _SCALED_NUMBERS // columns), X.shape[1]))
        runs = ordered_rows(X, order, block, allocate) if mapped else _taken(X, order, columns)
        for run, taken in runs:
            for rows in _chunks(slice(0, len(taken)), columns, _SCALED_NUMBERS):
                here, spare = space[:, : rows.stop - rows.start]
                here[:] = taken[rows]
                if scaled:
                    _scale(here, spare)
                _put_rows(block[run][rows], here, intercept=intercept, scaled=scaled)
        return cls(held, intercept=intercept)

    @property
    def rows(self) -> int:
        """Common rows."""
        return int(self._X.shape[0])

    @property
    def columns(self) -> int:
        """Weights of this party, the intercept included."""
        return int(self._X.shape[1])

    @property
    def free(self) -> tuple[int, ...]:
        """Coordinates that are never penalised: the intercept's."""
        return (self.columns - 1,) if self.intercept else ()

    def start_weights(self, start_theta: float = 0.0) -> FloatVector:
        """Public starting weights: zero, except an intercept that gives every row start_theta."""
        w = np.zeros(self.columns)
        if self.intercept:
            w[-1] = start_theta / float(self._X[0, -1])
        return w

    def scores(self, rows: slice, w: FloatVector) -> Unreleased:
        """X w on the rows of a batch."""
        parts = list(_chunks(rows, self.columns))
        products = self.each(_scores, parts, given=(w,))
        if len(parts) == 1:
            [scores] = products
            return Unreleased(scores)
        scores = np.empty(rows.stop - rows.start)
        for part, here in zip(parts, products, strict=True):
            scores[part.start - rows.start : part.stop - rows.start] = here
        return Unreleased(scores)

    def gradient(self, rows: slice, residual: Unreleased | FloatVector) -> FloatVector:
        """X' residual / rows of the batch: this party's part of the gradient of the mean loss."""
        h = residual.expose() if isinstance(residual, Unreleased) else residual
        total = np.zeros(self.columns)
        for here in self.each(_gradient, list(_chunks(rows, self.columns)), along=(h,)):
            total += here
        return total / len(h)

    def gram(self, rows: slice, weights: Unreleased | None = None) -> NDArray[np.float64]:
        """X' diag(weights) X / rows of the batch; without weights, X' X / rows."""
        v = () if weights is None else (weights.expose(),)
        total = np.zeros((self.columns, self.columns))
        for here in self.each(_gram, list(_chunks(rows, self.columns)), along=v):
            total += here
        total /= rows.stop - rows.start
        return total

    def each(
        self,
        kernel: Kernel,
        parts: Sequence[slice],
        *,
        along: tuple[FloatVector, ...] = (),
        given: tuple[Any, ...] = (),
    ) -> Iterator[NDArray[Any]]:
        """A kernel of consecutive parts of the rows, in order, by the engine of this block."""
        return self._rows.each(kernel, parts, along=along, given=given)

    def dense(self, rows: slice) -> NDArray[np.float64]:
        """The columns of some rows as float64; only for this party's own arithmetic."""
        return dense(self._X[rows])

    def taken(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The columns of the rows at these positions; only for this party's own arithmetic."""
        return dense(self._X[places])

    def __repr__(self) -> str:
        return f"<ColumnBlock of {self.rows} rows and {self.columns} columns>"

    def __reduce__(self) -> Any:
        raise TypeError("a party's columns cannot leave it")


def dense(X: Matrix) -> NDArray[np.float64]:
    """A part of a block as float64."""
    return np.asarray(X, dtype=np.float64)


def _gradient(X: Matrix, h: FloatVector) -> FloatVector:
    product: FloatVector = h @ dense(X)
    return product


def _gram(X: Matrix, *weights: FloatVector) -> NDArray[np.float64]:
    right = dense(X)
    left = right * weights[0][:, None] if weights else right
    product: NDArray[np.float64] = left.T @ right
    return product


def _scores(X: Matrix, w: FloatVector) -> FloatVector:
    """X w, part by part, so that a score has few rounding errors with any number of columns."""
    X = dense(X)
    total: FloatVector = X[:, :_PART_COLUMNS] @ w[:_PART_COLUMNS]
    for start in range(_PART_COLUMNS, len(w), _PART_COLUMNS):
        total += X[:, start : start + _PART_COLUMNS] @ w[start : start + _PART_COLUMNS]
    return total


def _taken(X: Matrix, order: NDArray[np.int64], columns: int) -> Iterator[tuple[slice, Matrix]]:
    for run in _chunks(slice(0, len(order)), columns, _SCALED_NUMBERS):
        yield run, X[order[run]]


def _chunks(rows: slice, columns: int, numbers: int | None = None) -> Iterator[slice]:
    step = max(1, (numbers or CHUNK_NUMBERS) // columns)
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def _put_rows(block: Matrix, X: NDArray[np.float64], *, intercept: bool, scaled: bool) -> None:
    """Write rows, and their intercept, into a block; X is overwritten."""
    length = math.sqrt(2.0) if intercept and scaled else 1.0
    shrink = _FLOAT32_SHRINK if scaled and block.dtype == np.float32 else 1.0
    for factor, change in ((length, np.divide), (shrink, np.multiply)):
        if factor != 1.0:
            change(X, factor, out=X)
    block[:, : X.shape[1]] = X
    if intercept:
        block[:, -1] = 1.0 / length * shrink
