"""Noise for one bounded number: a finite law whose likelihood ratios are known as integers.

It owns the laws, what each costs as a pure epsilon, how a point is drawn and how it is read; it
knows no stream, no account and no release.

Every law has N points and integer weights that add up to 2^128, so a draw from 128 uniform bits
follows it exactly and no distance to an ideal law is charged.

- *Window* (randomised response, K-ary response, piecewise). The input picks a place s in 0..N - W.
  The output is s + D modulo N, where D has the weight a at each of 0..W - 1 and b at the others.
  Whatever the input, W points have weight a and N - W have weight b: the cost is log(a / b), which
  is log[q (N - W) / ((1 - q) W)] with q = a W / 2^128. One point of W = 1 is randomised response.
- *Two points*. The input picks j in 0..J, and the output is 1 with weight b + j (a - b) / J of
  a + b = 2^128: between b and a for every input, so the cost is log(a / b) too.

What is booked is log(a / b) in units of 2^-40, rounded up. How a and b are chosen for an epsilon is
in bounded_laws.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import gmpy2
import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.table import WHOLE, AliasTable, integer_table
from schemas.privacy import PURE_UNIT_BITS, BoundedKind

Points = NDArray[np.int64]
Words = NDArray[np.uint64]
# Where a score lies in its range, as the mean square of t in [-1, 1]: chooses a law, costs nothing.
TYPICAL_SQUARE = 0.1
_PRECISION = 256
_LIMB = np.uint64(2**32 - 1)
_HALF_WORD = np.uint64(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedNoise:
    """One law for numbers of [low, high]: N points, W of them in the window, weights a and b.

    `steps` is the largest place an input can have; `pure_units` is the price of one release that
    moves in one coordinate.
    """

    kind: BoundedKind
    low: float
    high: float
    points: int
    window: int
    weight_in: int
    weight_out: int
    steps: int

    @property
    def pure_units(self) -> int:
        """log(a / b) in units of 2^-40, rounded up."""
        with gmpy2.context(precision=_PRECISION, round=gmpy2.RoundUp):
            cost = gmpy2.log(gmpy2.mpfr(self.weight_in) / gmpy2.mpfr(self.weight_out))
            return int(gmpy2.ceil(cost * 2**PURE_UNIT_BITS))

    @property
    def slope(self) -> float:
        """By how much the mean of the output moves for one place of the input."""
        if self.kind == "two_point":
            return (self.weight_in - self.weight_out) / (self.steps * WHOLE)
        return (self.weight_in - self.weight_out) * self.window / WHOLE

    @property
    def variance_terms(self) -> tuple[float, float]:
        """Noise variance of a decoded number is v0 + v1 t^2, t its place in the range as [-1, 1].

        Both in the square of the range's half width.
        """
        middle, end = self._variance_at(self.steps / 2), self._variance_at(0.0)
        scale = (2.0 / (self.steps * self.slope)) ** 2
        return middle * scale, (end - middle) * scale

    @property
    def noise_std(self) -> float:
        """The largest deviation of the noise of a decoded number, over all inputs."""
        v0, v1 = self.variance_terms
        return self.half_width * math.sqrt(v0 + max(v1, 0.0))

    @property
    def half_width(self) -> float:
        """Half the width of the range."""
        return (self.high - self.low) / 2.0

    def variance(self, mean_square: float = TYPICAL_SQUARE) -> float:
        """Mean noise variance of numbers whose t, in [-1, 1], have this mean square."""
        v0, v1 = self.variance_terms
        return self.half_width**2 * (v0 + v1 * mean_square)

    def places(self, values: FloatVector) -> Points:
        """The place of each number; NaN counts as 0, and what is outside as the nearer end."""
        inside = np.clip(np.nan_to_num(values, nan=0.0), self.low, self.high)
        share = (inside - self.low) / (self.high - self.low)
        return np.clip(np.rint(share * self.steps), 0, self.steps).astype("<i8")

    def draw(self, places: Points, high: Words, low: Words) -> Points:
        """Points for these places, from 128 uniform bits each; the same work for every one."""
        if self.kind == "two_point":
            return self._below_threshold(places, high, low)
        moved: Points = (places + _shift(self).draw(high, low)) % self.points
        return moved

    def decode(self, points: Points) -> FloatVector:
        """Numbers whose mean is the input (on its lattice) and whose noise `variance` tells."""
        places = (points - self._mean_at(0.0)) / self.slope
        step = (self.high - self.low) / self.steps
        return np.asarray(self.low + places * step, dtype=np.float64)

    def decode_classes(self, points: Points) -> NDArray[np.float64]:
        """One column for each class: unbiased for whether a row is of it."""
        if self.window != 1 or self.steps != self.points - 1:
            raise SettingsError("only K-ary response has classes to decode")
        hit = (points[:, None] == np.arange(self.points)[None, :]).astype(np.float64)
        return np.asarray((hit - self.weight_out / WHOLE) / self.slope, dtype=np.float64)

    def weights(self, place: int) -> list[int]:
        """The law of the output for one input, in units of 2^-128: what is drawn, exactly."""
        a, b = self.weight_in, self.weight_out
        if self.kind == "two_point":
            one = b + place * ((a - b) // self.steps)
            return [WHOLE - one, one]
        shifts = ((point - place) % self.points for point in range(self.points))
        return [a if shift < self.window else b for shift in shifts]

    def _mean_at(self, place: float) -> float:
        """Mean of the output for an input at a place; linear, so it may lie between two."""
        if self.kind == "two_point":
            return self.weight_out / WHOLE + place * self.slope
        flat = self.weight_out / WHOLE * self.points * (self.points - 1) / 2.0
        return flat + self.slope * (place + (self.window - 1) / 2.0)

    def _variance_at(self, place: float) -> float:
        """Variance of the output, in squared places; a sum of squares of consecutive points."""
        mean = self._mean_at(place)
        if self.kind == "two_point":
            return mean * (1.0 - mean)
        N, W = self.points, self.window
        b, extra = self.weight_out / WHOLE, (self.weight_in - self.weight_out) / WHOLE
        first, last = place - mean, place + W - 1 - mean
        inside = W * ((first + last) / 2.0) ** 2 + W * (W * W - 1) / 12.0
        every = N * ((N - 1) / 2.0 - mean) ** 2 + N * (N * N - 1) / 12.0
        return b * every + extra * inside

    def _below_threshold(self, places: Points, high: Words, low: Words) -> Points:
        """1 where the uniform lies below b + j (a - b) / J, in 32-bit limbs."""
        step = (self.weight_in - self.weight_out) // self.steps
        j, carry = places.astype(np.uint64), np.zeros(places.shape, dtype=np.uint64)
        limbs = []
        for n in range(4):
            part = [np.uint64(number >> 32 * n & 0xFFFFFFFF) for number in (step, self.weight_out)]
            carry = j * part[0] + part[1] + carry
            limbs.append(carry & _LIMB)
            carry = carry >> _HALF_WORD
        top = limbs[3] << _HALF_WORD | limbs[2]
        bottom = limbs[1] << _HALF_WORD | limbs[0]
        below = (high < top) | ((high == top) & (low < bottom))
        return np.asarray(below, dtype=np.int64)


@lru_cache(maxsize=32)
def _shift(noise: BoundedNoise) -> AliasTable:
    """The law of D."""
    outside = noise.points - noise.window
    return integer_table([noise.weight_in] * noise.window + [noise.weight_out] * outside)
