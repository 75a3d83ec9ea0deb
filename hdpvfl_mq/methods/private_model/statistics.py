"""Exact sums of a passive party: X'z and X'X over all rows, without rounding.

It owns the conversion of rows and residuals to integers, and their sums; it knows no noise. A block
of few enough rows is exact in float64, and blocks are added as integers, so the result has the same
bits in any order on any engine. Rows become multiples of 2^-20, rounded toward zero, which keeps
their norm at most 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate, chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.engine.port import Matrix
from hdpvfl_mq.glm.block import ColumnBlock, dense

ROW_BITS, Z_BITS = 20, 16
_BLOCK_ROWS = 8192
# Blocks that a kernel adds up at a time: their sum stays below 2^63.
_BLOCKS_TOGETHER = 8
_SHARES = 32  # the number of parts is a multiple of this, unless they were shorter than a block
_CACHED_NUMBERS = 2**16  # half a MiB of float64
# Sums of this many rows stay below 2^63 in units of 2^-40.
_INT64_ROWS = 2**22

Integers = NDArray[np.int64]


def row_integers(X: Matrix) -> NDArray[np.float64]:
    """Rows in units of 2^-20, as whole numbers in float64.

    *Bound*: the squares of a row add up to at most 2^40. Rounding toward zero ensures that; a row
    that is longer nevertheless counts as zero.
    """
    found = np.empty(X.shape)
    for part in chunks(len(X), _cached_rows(X)):
        scaled = np.multiply(dense(X[part]), 2.0**ROW_BITS, out=found[part])
        np.trunc(scaled, out=scaled)
        squares = np.vecdot(scaled, scaled)  # sums up to 2^40 are exact in any order
        scaled[squares > 2.0 ** (2 * ROW_BITS)] = 0.0
    return found


def clipped(received: FloatVector, clip: float, allocate: Allocate = np.empty) -> FloatVector:
    """z: received values, centred, clipped, then rounded toward zero to a multiple of 2^-16."""
    mean = received.mean()
    found: FloatVector = allocate((len(received),), np.float64)
    for part in chunks(len(received), _BLOCK_ROWS):
        z = np.clip(received[part] - mean, -clip, clip)
        found[part] = np.trunc(z * 2.0**Z_BITS) * 2.0**-Z_BITS
    return found


def moments(block: ColumnBlock, z: FloatVector, *, clip: float, exponent: int) -> Unreleased:
    """X'z / n on the grid 2^exponent, for the first len(z) rows."""
    total = [0] * block.columns
    size = max(1, min(_BLOCK_ROWS, math.floor(2**17 / clip)))
    for here in block.each(_moments, _shares(len(z), size), along=(z,), given=(size,)):
        total = [a + int(b) for a, b in zip(total, here, strict=True)]
    return Unreleased(_on_grid(total, len(z), ROW_BITS + Z_BITS, exponent))


def gram(block: ColumnBlock, rows: int, *, exponent: int) -> Unreleased:
    """X'X / n on the grid 2^exponent: the diagonal, then the rest of the upper triangle."""
    total: Any = np.zeros((block.columns, block.columns), dtype=np.int64)
    if rows > _INT64_ROWS:
        total = total.astype(object)
    for here in block.each(_gram, _shares(rows, _BLOCK_ROWS)):
        total += here
    packed = [int(entry) for entry in np.concatenate([np.diag(total), total[_upper(len(total))]])]
    return Unreleased(_on_grid(packed, rows, 2 * ROW_BITS, exponent))


def unpacked(packed: FloatVector) -> NDArray[np.float64]:
    """The symmetric matrix of a packed upper triangle."""
    columns = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    matrix = np.diag(packed[:columns])
    matrix[_upper(columns)] = packed[columns:]
    return matrix + np.triu(matrix, 1).T


def scores(block: ColumnBlock, rows: slice, w: FloatVector) -> FloatVector:
    """X w for weights that are multiples of 2^-20 of norm below 2^12: exact, row by row."""
    found, count = np.empty(rows.stop - rows.start), rows.stop - rows.start
    parts = [
        slice(rows.start + part.start, rows.start + part.stop)
        for part in chunks(count, _BLOCK_ROWS)
    ]
    for part, here in zip(parts, block.each(_scores, parts, given=(w,)), strict=True):
        found[part.start - rows.start : part.stop - rows.start] = here
    return found


def weight_grid(w: FloatVector) -> FloatVector:
    """Weights as multiples of 2^-20, toward zero: their scores are exact."""
    return np.trunc(w * 2.0**ROW_BITS) * 2.0**-ROW_BITS


def _moments(X: Matrix, z: FloatVector, size: int) -> Integers:
    total = np.zeros(X.shape[1], dtype=np.int64)
    for part in chunks(len(X), min(size, _cached_rows(X))):
        whole = z[part] * 2.0**Z_BITS
        total += (row_integers(X[part]).T @ whole).astype(np.int64)
    return total


def _gram(X: Matrix) -> Integers:
    total = np.zeros((X.shape[1], X.shape[1]), dtype=np.int64)
    for part in chunks(len(X), _BLOCK_ROWS):
        rows = row_integers(X[part])
        total += (rows.T @ rows).astype(np.int64)
    return total


def _scores(X: Matrix, w: FloatVector) -> FloatVector:
    scores, whole = np.empty(len(X)), w * 2.0**ROW_BITS
    for part in chunks(len(X), _cached_rows(X)):
        scores[part] = row_integers(X[part]) @ whole
    return scores * 2.0 ** (-2 * ROW_BITS)


def _cached_rows(X: Matrix) -> int:
    """Rows whose integers fit a cache; sums are exact, so the bits do not depend on it."""
    return max(1, _CACHED_NUMBERS // max(1, int(X.shape[1])))


def _on_grid(sums: list[int], rows: int, bits: int, exponent: int) -> FloatVector:
    """Sums in units of 2^-bits, over n, to the nearest multiple of 2^exponent, halves up."""
    shift = bits + exponent
    top, bottom = (0, rows << shift) if shift >= 0 else (-shift, rows)
    return np.array(
        [((2 * (total << top) + bottom) // (2 * bottom)) * 2.0**exponent for total in sums]
    )


def _shares(rows: int, size: int) -> list[slice]:
    """Parts of equal length, so that workers finish together: at least a block, or the rows."""
    count = -(-rows // (_SHARES * _BLOCKS_TOGETHER * size)) * _SHARES
    return list(chunks(rows, max(size, -(-rows // max(1, count)))))


def _upper(columns: int) -> tuple[Any, ...]:
    return np.triu_indices(columns, 1)
