"""One party's columns of the common rows, ready for rounds: scores out, gradient in.

It owns row scaling, the intercept column and the products with the columns; it knows no ids,
labels or files. A block is float64 in memory, or float32 in a mapped file, which is widened chunk
by chunk: the arithmetic is float64 on the numbers as stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.glm.reorder import Matrix, ordered_rows

# Numbers multiplied at a time: 8 MiB of float64.
CHUNK_NUMBERS = 2**20
# Columns summed in one product: a score is then off by 4096 + columns / 4096 roundings at most.
_PART_COLUMNS = 4096
# How far roundings can part the scores of one row in two runs, by the norm of the weights.
# *Bound*: twice 2^-53 for each of the roundings above, with up to 10^6 columns.
SCORE_ROUNDING = 2.0**-39
# Rounding to float32 may lengthen a row by 2**-24 of itself; this keeps it within the unit ball.
_FLOAT32_SHRINK = 1.0 - 2.0**-23


def scale_rows(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """x / max(1, |x|), row by row.

    *Bound*: every row has norm at most 1, also where the square of an entry overflows.
    """
    peak = np.maximum(1.0, np.abs(X).max(axis=1, initial=0.0))[:, None]
    reduced = X / peak
    norm = np.sqrt(np.square(reduced).sum(axis=1))[:, None]
    scaled: NDArray[np.float64] = reduced / np.maximum(1.0 / peak, norm)
    return scaled


class ColumnBlock:
    """Aligned rows of one party, with an intercept as last column if it is the active one."""

    def __init__(self, X: Matrix, *, intercept: bool = False) -> None:
        if X.ndim != 2 or X.dtype not in (np.float64, np.float32):
            raise DataError("a block is a two-dimensional array of float64 or float32")
        if X.shape[1] == 0:
            raise DataError("a block has no column")
        self._X = X if X.flags.c_contiguous else np.ascontiguousarray(X)
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
    ) -> ColumnBlock:
        """Take rows of X in the given order, scale them, append the intercept.

        With an intercept a scaled row is (x, 1) / sqrt(2). The block has the type of X.
        """
        columns = X.shape[1] + int(intercept)
        block: Matrix = allocate((len(order), columns), X.dtype)
        mapped = isinstance(X, np.memmap)
        for run, taken in ordered_rows(X, order, block, allocate) if mapped else _taken(X, order):
            for rows in _chunks(slice(0, len(taken)), columns):
                block[run][rows] = _block_rows(
                    np.asarray(taken[rows], dtype=np.float64),
                    intercept=intercept,
                    scaled=scaled,
                    narrow=X.dtype == np.float32,
                )
        return cls(block, intercept=intercept)

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
        """Public starting weights: zero, but for an intercept that gives every row start_theta."""
        w = np.zeros(self.columns)
        if self.intercept:
            w[-1] = start_theta / float(self._X[0, -1])
        return w

    def scores(self, rows: slice, w: FloatVector) -> Unreleased:
        """X w on the rows of a batch."""
        scores = np.empty(rows.stop - rows.start)
        for part in _chunks(rows, self.columns):
            scores[part.start - rows.start : part.stop - rows.start] = _product(self.dense(part), w)
        return Unreleased(scores)

    def gradient(self, rows: slice, residual: Unreleased | FloatVector) -> FloatVector:
        """X' residual / rows of the batch: this party's part of the mean loss's gradient."""
        h = residual.expose() if isinstance(residual, Unreleased) else residual
        total = np.zeros(self.columns)
        for part in _chunks(rows, self.columns):
            total += h[part.start - rows.start : part.stop - rows.start] @ self.dense(part)
        return total / len(h)

    def gram(self, rows: slice, weights: Unreleased | None = None) -> NDArray[np.float64]:
        """X' diag(weights) X / rows of the batch; without weights, X' X / rows."""
        v = None if weights is None else weights.expose()
        total = np.zeros((self.columns, self.columns))
        for part in _chunks(rows, self.columns):
            X = self.dense(part)
            left = X if v is None else X * v[part.start - rows.start : part.stop - rows.start, None]
            total += left.T @ X
        total /= rows.stop - rows.start
        return total

    def dense(self, rows: slice) -> NDArray[np.float64]:
        """The columns of some rows as float64; for arithmetic of this party alone."""
        return np.asarray(self._X[rows], dtype=np.float64)

    def __repr__(self) -> str:
        return f"<ColumnBlock of {self.rows} rows and {self.columns} columns>"

    def __reduce__(self) -> Any:
        raise TypeError("a party's columns cannot leave it")


def _product(X: NDArray[np.float64], w: FloatVector) -> FloatVector:
    """X w, part by part, so that a score has few roundings however many columns there are."""
    total: FloatVector = X[:, :_PART_COLUMNS] @ w[:_PART_COLUMNS]
    for start in range(_PART_COLUMNS, len(w), _PART_COLUMNS):
        total += X[:, start : start + _PART_COLUMNS] @ w[start : start + _PART_COLUMNS]
    return total


def _taken(X: Matrix, order: NDArray[np.int64]) -> Iterator[tuple[slice, Matrix]]:
    for run in _chunks(slice(0, len(order)), X.shape[1]):
        yield run, X[order[run]]


def _chunks(rows: slice, columns: int) -> Iterator[slice]:
    step = max(1, CHUNK_NUMBERS // columns)
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def _block_rows(
    X: NDArray[np.float64], *, intercept: bool, scaled: bool, narrow: bool
) -> NDArray[np.float64]:
    if scaled:
        X = scale_rows(X)
    if intercept:
        X = np.hstack([X, np.ones((len(X), 1))])
        if scaled:
            X = X / math.sqrt(2.0)
    return X * _FLOAT32_SHRINK if narrow and scaled else X
