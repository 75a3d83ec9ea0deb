"""Means, spreads and ranges of columns: of one chunk, and of all chunks so far.

It owns Chan's update, which adds the moments of a chunk to those before it; it knows no settings.
Moments of chunks may be computed in any order, and are added in the order of the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class ChunkMoments:
    """An entry for each column; count, mean and squares are 0 for columns that learn nothing."""

    low: Numbers  # NaN if a cell is empty
    high: Numbers
    least: Numbers  # of the cells that are not empty; infinite if all are
    most: Numbers
    empty: NDArray[np.int64]
    count: NDArray[np.int64]
    mean: Numbers
    squares: Numbers  # sums of squared deviations from the mean


def moments_of(
    values: Numbers, low: Numbers, high: Numbers, *, learning: Sequence[int]
) -> ChunkMoments:
    """Moments of one chunk. Each matrix row is a source column; NaN marks an empty cell.

    `low` and `high` are the ends of each column. Means and deviations are computed for the
    `learning` columns alone, whose cells are finite and may be squared.
    """
    columns = len(values)
    least, most = low.copy(), high.copy()
    empty, count = np.zeros(columns, dtype=np.int64), np.zeros(columns, dtype=np.int64)
    mean, squares = np.zeros(columns), np.zeros(columns)
    for column in np.flatnonzero(np.isnan(low)).tolist():
        present = _present(values[column])
        empty[column] = values.shape[1] - present.size
        least[column] = present.min(initial=np.inf)
        most[column] = present.max(initial=-np.inf)
    for column in learning:
        present = _present(values[column]) if empty[column] else values[column]
        if present.size:
            count[column] = present.size
            # Infinite and huge cells are refused by the caller, who knows their rows.
            with np.errstate(over="ignore", invalid="ignore"):
                mean[column] = present.mean()
                squares[column] = np.square(present - mean[column]).sum()
    return ChunkMoments(low, high, least, most, empty, count, mean, squares)


def _present(values: Numbers) -> Numbers:
    return values[~np.isnan(values)]


class Moments:
    """Count, mean, squared deviations and range of several columns so far (Chan's update)."""

    def __init__(self, columns: int) -> None:
        self._count = np.zeros(columns, dtype=np.int64)
        self._mean, self._squares = np.zeros(columns), np.zeros(columns)
        self._least, self._most = np.full(columns, np.inf), np.full(columns, -np.inf)
        self._empty = np.zeros(columns, dtype=np.int64)

    def add(self, chunk: ChunkMoments) -> None:
        """Add the next rows."""
        self._least = np.minimum(self._least, chunk.least)
        self._most = np.maximum(self._most, chunk.most)
        self._empty += chunk.empty
        has = np.flatnonzero(chunk.count)
        before, count = self._count[has], chunk.count[has]
        total, shift = before + count, chunk.mean[has] - self._mean[has]
        self._squares[has] += chunk.squares[has]
        self._squares[has] += shift * shift * before * count / total
        self._mean[has] += shift * count / total
        self._count[has] = total

    def of(self, column: int) -> Fitted:
        """The fitted constants of one column."""
        spread = float(np.sqrt(self._squares[column] / max(1, int(self._count[column]))))
        is_constant = not self._least[column] < self._most[column]
        return Fitted(
            float(self._mean[column]), spread, is_constant, empties=int(self._empty[column])
        )


@dataclass(frozen=True, repr=False)
class Fitted:
    """Mean, population standard deviation, and how many cells were empty."""

    mean: float
    spread: float
    is_constant: bool
    empties: int
