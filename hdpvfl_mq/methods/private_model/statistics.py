"""Exact sums of a passive party: X'z and X'X over all rows, without a rounding.

It owns the integers that rows and residuals become, and their sums; it knows no noise. A block of
few enough rows is exact in float64, blocks add up in integers, so the same bits come out in any
order on any engine. Rows become multiples of 2^-20, rounded toward zero, which keeps their norm at
most 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.glm.block import ColumnBlock

ROW_BITS, Z_BITS = 20, 16
_BLOCK_ROWS = 8192
# Sums of this many rows stay below 2^63 in units of 2^-40.
_INT64_ROWS = 2**22

Integers = NDArray[np.int64]


def row_integers(block: ColumnBlock, rows: slice) -> NDArray[np.float64]:
    """Rows in units of 2^-20, as whole numbers in float64.

    *Bound*: the squares of a row add up to at most 2^40. Rounding toward zero sees to it; a row
    that were nevertheless longer would count as zero.
    """
    scaled: NDArray[np.float64] = np.trunc(block.dense(rows) * 2.0**ROW_BITS)
    scaled[np.square(scaled).sum(axis=1) > 2.0 ** (2 * ROW_BITS)] = 0.0
    return scaled


def clipped(received: FloatVector, clip: float) -> FloatVector:
    """z: what was received, centred, then clipped, then a multiple of 2^-16 toward zero."""
    z = np.clip(received - received.mean(), -clip, clip)
    whole: FloatVector = np.trunc(z * 2.0**Z_BITS)
    return whole * 2.0**-Z_BITS


def moments(block: ColumnBlock, z: FloatVector, *, clip: float, exponent: int) -> Unreleased:
    """X'z / n on the grid 2^exponent, for the first len(z) rows."""
    total = [0] * block.columns
    size = max(1, min(_BLOCK_ROWS, math.floor(2**17 / clip)))
    whole = z * 2.0**Z_BITS
    for part in _blocks(len(z), size):
        here = (row_integers(block, part).T @ whole[part]).astype(np.int64)
        total = [a + int(b) for a, b in zip(total, here, strict=True)]
    return Unreleased(_on_grid(total, len(z), ROW_BITS + Z_BITS, exponent))


def gram(block: ColumnBlock, rows: int, *, exponent: int) -> Unreleased:
    """X'X / n on the grid 2^exponent: the diagonal, then the rest of the upper triangle."""
    total: Any = np.zeros((block.columns, block.columns), dtype=np.int64)
    if rows > _INT64_ROWS:
        total = total.astype(object)
    for part in _blocks(rows, _BLOCK_ROWS):
        X = row_integers(block, part)
        total += (X.T @ X).astype(np.int64)
    packed = [int(entry) for entry in np.concatenate([np.diag(total), total[_upper(len(total))]])]
    return Unreleased(_on_grid(packed, rows, 2 * ROW_BITS, exponent))


def unpacked(packed: FloatVector) -> NDArray[np.float64]:
    """The symmetric matrix again."""
    columns = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    matrix = np.diag(packed[:columns])
    matrix[_upper(columns)] = packed[columns:]
    return matrix + np.triu(matrix, 1).T


def scores(block: ColumnBlock, rows: slice, w: FloatVector) -> FloatVector:
    """X w for weights that are multiples of 2^-20 of norm below 2^12: exact, row by row."""
    found = np.empty(rows.stop - rows.start)
    for part in _blocks(rows.stop - rows.start, _BLOCK_ROWS):
        here = slice(rows.start + part.start, rows.start + part.stop)
        found[part] = row_integers(block, here) @ (w * 2.0**ROW_BITS) * 2.0 ** (-2 * ROW_BITS)
    return found


def weight_grid(w: FloatVector) -> FloatVector:
    """Weights as multiples of 2^-20, toward zero: their scores are exact."""
    return np.trunc(w * 2.0**ROW_BITS) * 2.0**-ROW_BITS


def _on_grid(sums: list[int], rows: int, bits: int, exponent: int) -> FloatVector:
    """Sums in units of 2^-bits, over n, to the nearest multiple of 2^exponent, halves up."""
    shift = bits + exponent
    top, bottom = (0, rows << shift) if shift >= 0 else (-shift, rows)
    return np.array(
        [((2 * (total << top) + bottom) // (2 * bottom)) * 2.0**exponent for total in sums]
    )


def _upper(columns: int) -> tuple[Any, ...]:
    return np.triu_indices(columns, 1)


def _blocks(rows: int, size: int) -> Iterator[slice]:
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
