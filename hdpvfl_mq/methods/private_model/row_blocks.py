"""Arithmetic over many rows, a block of rows at a time, folded in the order of the blocks.

It owns the size of a block and the fold; it knows no column and no label. Rows of one block give
the bits of the same formula over the whole array. With mapped arrays memory is that of a block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate, chunks

BLOCK_ROWS = 2**18
Array = NDArray[np.float64]


def filled(shape: tuple[int, ...], formula: Callable[[slice], Array], allocate: Allocate) -> Array:
    """An array whose rows the formula gives, block by block."""
    made: Array = allocate(shape, np.float64)
    for part in chunks(shape[0], BLOCK_ROWS):
        made[part] = formula(part)
    return made


def summed(rows: int, formula: Callable[[slice], Array]) -> Array:
    """The sum of what the formula gives for every block."""
    parts = list(chunks(rows, BLOCK_ROWS)) or [slice(0, 0)]
    total = np.asarray(formula(parts[0]))
    for part in parts[1:]:
        total = total + formula(part)
    return total


def variance(rows: int, formula: Callable[[slice], Array]) -> Array:
    """The variance of the rows that the formula gives, for each column; they are made twice."""
    mean = summed(rows, lambda part: formula(part).sum(axis=0)) / rows
    return summed(rows, lambda part: np.square(formula(part) - mean).sum(axis=0)) / rows
