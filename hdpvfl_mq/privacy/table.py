"""Integer tables of two laws on the integers, and a sampler that does the same work for every draw.

It owns the 128-bit tables of the rounded and the discrete Gaussian, their distance to the exact
law, and drawing from them; it knows no stream, no grid and no release.

A table is the cumulative law at every integer, times 2^128, rounded to nearest from 256 bits. Its
differences are integer weights that add up to 2^128 exactly. Walker's alias method rearranges these
integers without rounding, so a draw follows the law of the table exactly. A draw is one look-up and
one 128-bit comparison, whatever its value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import gmpy2
import numpy as np
from numpy.typing import NDArray

WHOLE = 2**128
# Tails are cut here, in standard deviations: 2^-132 of the mass lies beyond.
CUT = 13.5
_PRECISION = 256
_GUARD = 64
# Below this deviation a cell is too wide for the series, and the table short enough for erfc.
_SERIES_FROM = 32.0
_SERIES_TERMS = 30
_SMALL = 2**15  # values of a table with fewer columns fit 16 bits


@dataclass(frozen=True, slots=True, eq=False)
class AliasTable:
    """2^index_bits columns; column i gives its own value below its end, else its alias.

    *Bound.* `distance` is at least the total variation between a draw and the exact law.
    """

    index_bits: int
    # Words at which the columns' own values end: the high ones are the number of the column, then
    # the upper bits of its threshold.
    ends: NDArray[np.uint64]
    ends_low: NDArray[np.uint64]
    values: NDArray[np.int64] | NDArray[np.int32] | NDArray[np.int16]
    distance: Any

    def draw(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Turn 128-bit uniforms, as pairs of words, into samples.

        The low words decide only where the high ones tie, once in 2^(64 - index_bits) draws.
        """
        column = (high >> np.uint64(64 - self.index_bits)).view(np.int64)
        end = self.ends.take(column)
        own, tied = high < end, high == end
        if np.count_nonzero(tied):
            own |= tied & (low < self.ends_low.take(column))
        column <<= 1
        column += own
        return self.values.take(column).astype(np.int64, copy=False)

    def times(self, spacing: int) -> AliasTable:
        """The table whose draws are those of this one times `spacing`."""
        most = spacing * int(np.abs(self.values).max())
        values = np.multiply(self.values, spacing, dtype=np.int64)
        return replace(self, values=values.astype(np.int32) if most < 2**31 else values)


@lru_cache(maxsize=128)
def rounded_gaussian(std: float) -> AliasTable:
    """Table of N(0, std^2) rounded to the nearest integer."""
    cells = _cells_by_series if std >= _SERIES_FROM else _cells_by_erfc
    return _table(std, cells)


@lru_cache(maxsize=128)
def discrete_gaussian(std: float) -> AliasTable:
    """Table of the law on the integers with weights exp(-j^2 / (2 std^2))."""
    return _table(std, _cells_discrete)


def integer_table(weights: list[int]) -> AliasTable:
    """Exact table of the law with these integer weights at 0, 1, ...; they add up to 2^128."""
    if sum(weights) != WHOLE or min(weights) < 0:
        raise ValueError("the weights of a law add up to 2^128")
    return _alias(weights, 0, gmpy2.mpfr(0))


def _table(std: float, cells: Callable[[float, int], list[Any]]) -> AliasTable:
    with gmpy2.context(precision=_PRECISION):
        reach = int(CUT * std) + 2
        mass = cells(std, reach)  # the mass of each integer 0, 1, ..., reach
        inside = mass[0] + 2 * sum(mass[1:])
        # Rounding of the entries (half a unit each, both neighbours, halved), and the tails.
        distance = gmpy2.mpfr(2 * reach + 1) / (2 * WHOLE) + abs(1 - inside) + gmpy2.exp2(-200)
        entries, sum_so_far = [], mass[0] / 2 + gmpy2.mpfr(0.5)
        for extra in [*mass[1:], gmpy2.mpfr(0)]:
            entries.append(int(gmpy2.rint(sum_so_far * WHOLE)))
            sum_so_far += extra
        entries[-1] = WHOLE
    right = [b - a for a, b in pairwise(entries)]
    centre = 2 * entries[0] - WHOLE
    return _alias([*reversed(right), centre, *right], reach, distance)


def _cells_by_erfc(std: float, reach: int) -> list[Any]:
    scale = 1 / (gmpy2.mpfr(std) * gmpy2.sqrt(gmpy2.mpfr(2)))
    upper = [gmpy2.erfc((gmpy2.mpfr(j) + 0.5) * scale) / 2 for j in range(reach + 1)]
    return [1 - 2 * upper[0], *(a - b for a, b in pairwise(upper))]


def _cells_by_series(std: float, reach: int) -> list[Any]:
    """Integrate the density over each cell by its Taylor series about the middle.

    *Bound.* The integral is 2 phi(x) times the sum over even n of He_n(x) h^(n+1) / (n+1)!, with
    h = 1 / (2 std). By Cramer's inequality |He_n(x)| phi(x) <= sqrt(n!), so for std >= 32 the
    remainder after n = 30 is below 2^-240 in every cell. The sum is a polynomial in x^2 whose first
    coefficient outweighs all others, so Horner's rule loses no more than the last few bits.
    """
    first, *rest = _series(1 / (2 * gmpy2.mpfr(std)))
    rest.reverse()
    peak = 1 / gmpy2.sqrt(2 * gmpy2.const_pi())
    inverse_square = 1 / gmpy2.mpfr(std) ** 2
    cells = []
    for j, density in enumerate(_powers_of_squares(-inverse_square / 2, reach)):
        square, total = j * j * inverse_square, gmpy2.mpfr(0)
        for coefficient in rest:
            total = (total + coefficient) * square
        cells.append(peak * density * (total + first))
    return cells


def _series(h: Any) -> list[Any]:
    """The coefficients in x^2 of 2 times the sum over even n of He_n(x) h^(n+1) / (n+1)!."""
    coefficients = [gmpy2.mpfr(0)] * (_SERIES_TERMS // 2 + 1)
    before, hermite, power = [0], [1], h
    for n in range(_SERIES_TERMS + 1):
        if n % 2 == 0:
            for k in range(0, n + 1, 2):
                coefficients[k // 2] += 2 * power * hermite[k]
        longer = [0, *hermite]  # x He_n - n He_(n-1)
        for k, each in enumerate(before):
            longer[k] -= n * each
        before, hermite, power = hermite, longer, power * h / (n + 2)
    return coefficients


def _cells_discrete(std: float, reach: int) -> list[Any]:
    scale = -1 / (2 * gmpy2.mpfr(std) ** 2)
    weights = _powers_of_squares(scale, reach)
    # Beyond the reach the weights fall faster than this geometric series.
    last = gmpy2.exp((reach + 1) ** 2 * scale)
    tail = last / (1 - gmpy2.exp((2 * reach + 3) * scale))
    whole = weights[0] + 2 * sum(weights[1:]) + 2 * tail
    return [weight / whole for weight in weights]


def _powers_of_squares(scale: Any, reach: int) -> list[Any]:
    """exp(j^2 scale) for j = 0, ..., reach, by two multiplications each.

    *Bound.* Every power is a product of j factors, each a product of as many: rounding moves it by
    at most (reach + 2)^2 units in the last of the _PRECISION + _GUARD bits.
    """
    with gmpy2.context(precision=_PRECISION + _GUARD):
        step = gmpy2.exp(2 * scale)
        power, factor, powers = gmpy2.mpfr(1), gmpy2.exp(scale), [gmpy2.mpfr(1)]
        for _ in range(reach):
            power *= factor
            factor *= step
            powers.append(power)
    return powers


def _alias(weights: list[int], reach: int, distance: Any) -> AliasTable:
    """Fill 2^m columns of 2^(128 - m) units each with at most two values (Vose, in integers)."""
    index_bits = max(1, (len(weights) - 1).bit_length())
    columns, capacity = 1 << index_bits, WHOLE >> index_bits
    left = weights + [0] * (columns - len(weights))
    alias = list(range(columns))
    small = [i for i, units in zip(alias, left, strict=True) if units < capacity]
    large = [i for i, units in zip(alias, left, strict=True) if units >= capacity]
    while small:
        poor, rich = small.pop(), large[-1]
        alias[poor] = rich
        left[rich] -= capacity - left[poor]
        if left[rich] < capacity:
            small.append(large.pop())
    # What is left in a column is its threshold: those never poor have a whole column each.
    octets = (units.to_bytes(16, "little") for units in left)
    words = np.fromiter(octets, "S16", columns).view("<u8")
    value = np.arange(columns, dtype=np.int64) - reach
    values = np.stack([value[alias], value], axis=1).reshape(-1)
    if columns <= _SMALL:  # a small table stays in the processor's cache
        values = values.astype(np.int16)
    high = words[1::2].astype(np.uint64)
    first = np.arange(columns, dtype=np.uint64) << np.uint64(64 - index_bits)
    # The last column's end may be 2^64; one less is right too, as that column is full and has one
    # value whichever side a word falls on.
    ends = np.where(high > ~first, np.uint64(2**64 - 1), first + high)
    return AliasTable(index_bits, ends, words[::2].astype(np.uint64), values, distance)
