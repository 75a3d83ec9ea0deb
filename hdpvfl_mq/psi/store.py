"""The oblivious key-value store.

It owns layout, solving and look-up; it knows no party and no id. Each key names three sparse cells,
one in each third, and a subset of 48 dense cells; its value is the XOR of them. Cells that no key
decides are random, so the store of random values looks the same for any keys.

*Bound*: with 1.3 sparse cells per key and 2,048 more, peeling leaves a core of at most a few
equations, and the dense cells fail to solve it with probability below 2^-40 (Garimella et al. 2021,
Raghuraman and Rindal 2022). A failure ends the run and is never retried: a retry would leak
information to a peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.distinct import union
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.psi.bits import digits, subset_xors
from hdpvfl_mq.psi.peel import Positions, peel
from hdpvfl_mq.psi.stream import Words, derive, permute_pairs, random_pairs

DENSE = 48
_DIGIT_BITS = 12
_CHUNK = 1 << 14


def store_cells(keys: int) -> int:
    """Number of cells of a store for this many keys; a multiple of 8."""
    return 3 * _third(keys) + DENSE


def _third(keys: int) -> int:
    return -(-(13 * keys // 10 + 2048) // 24) * 8


@dataclass(frozen=True)
class Cells:
    """Which cells each key of a store of `size` cells names."""

    size: int
    sparse: Positions  # (keys, 3)
    subset: Words  # (keys, 2), the first 48 bits choose among the dense cells

    @cached_property
    def dense(self) -> list[Positions]:
        """The subset as digits of 12 bits."""
        return digits(self.subset, _DIGIT_BITS, DENSE // _DIGIT_BITS)


def locate(elements: Words, keys: int, seed: bytes) -> Cells:
    """The cells of 128-bit elements in a store laid out for `keys` keys under a public seed."""
    third = _third(keys)
    hashed = permute_pairs(derive(seed, "sparse"), elements).view("<u4")[:, :3].astype(np.uint64)
    offsets = np.array([0, third, 2 * third], dtype=np.intp)
    sparse = ((hashed * np.uint64(third)) >> np.uint64(32)).astype(np.intp) + offsets
    return Cells(store_cells(keys), sparse, permute_pairs(derive(seed, "dense"), elements))


def look_up(table: Words, cells: Cells, start: int = 0, stop: int | None = None) -> Words:
    """The values of keys start..stop-1, as wide as the table's rows."""
    stop = len(cells.sparse) if stop is None else stop
    result = np.empty((stop - start, table.shape[1]), dtype=np.uint64)
    dense = table[-DENSE:]
    tables = [
        subset_xors(dense[first : first + _DIGIT_BITS]) for first in range(0, DENSE, _DIGIT_BITS)
    ]
    for low in range(start, stop, _CHUNK):
        high = min(low + _CHUNK, stop)
        part = table.take(cells.sparse[low:high, 0], axis=0)
        for third in (1, 2):
            part ^= table.take(cells.sparse[low:high, third], axis=0)
        for xors, digit in zip(tables, cells.dense, strict=True):
            part ^= xors.take(digit[low:high], axis=0)
        result[low - start : high - start] = part
    return result


def solve(cells: Cells, values: Words, key: bytes) -> Words:
    """A table in which every key finds its 128-bit value; free cells are random under the key."""
    table = random_pairs(key, cells.size).copy()
    peeling = peel(cells.sparse, cells.size)
    for _, solved in peeling.layers:
        table[solved] = 0
    _solve_core(table, cells, values, peeling.core)
    residual = values.copy()
    for first, digit in zip(range(0, DENSE, _DIGIT_BITS), cells.dense, strict=True):
        start = cells.size - DENSE + first
        residual ^= subset_xors(table[start : start + _DIGIT_BITS]).take(digit, axis=0)
    for equations, solved in reversed(peeling.layers):
        near = cells.sparse[equations]
        known = table.take(near[:, 0], axis=0) ^ table.take(near[:, 1], axis=0)
        table[solved] = residual[equations] ^ known ^ table.take(near[:, 2], axis=0)
    return table


def _solve_core(table: Words, cells: Cells, values: Words, core: Positions) -> None:
    """Gauss-Jordan over the few equations left, their sparse cells and the dense ones."""
    if not core.size:
        return
    columns = union(cells.sparse[core].ravel(), np.arange(cells.size - DENSE, cells.size))
    matrix = np.zeros((len(core), len(columns)), dtype=bool)
    for row, equation in enumerate(core):
        matrix[row, np.searchsorted(columns, cells.sparse[equation])] = True
    octets = cells.subset[core].astype("<u8").view(np.uint8).reshape(len(core), 16)
    matrix[:, -DENSE:] = np.unpackbits(octets[:, : DENSE // 8], axis=1, bitorder="little")
    right = values[core].copy()
    pivots = _reduce(matrix, right)
    free = matrix.copy()
    free[:, pivots] = False
    for row, pivot in enumerate(pivots):
        others = table[columns[free[row]]]
        table[columns[pivot]] = right[row] ^ np.bitwise_xor.reduce(others, axis=0)


def _reduce(matrix: NDArray[np.bool_], right: Words) -> list[int]:
    """Reduce to one pivot per row, in place; returns the pivot columns in row order."""
    pivots = []
    for row in range(len(matrix)):
        ones = np.flatnonzero(matrix[row])
        if not ones.size:
            raise IntegrityError("the key-value store has no solution: start again with a new seed")
        pivot = int(ones[0])
        others = matrix[:, pivot].copy()
        others[row] = False
        matrix[others] ^= matrix[row]
        right[others] ^= right[row]
        pivots.append(pivot)
    return pivots
