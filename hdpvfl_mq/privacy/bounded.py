"""Noise for one bounded number: a finite law whose likelihood ratios are known as integers.

It owns the laws, the pure epsilon of each, and how a point is drawn and decoded; it knows no
stream, no account and no release.

Every law has N points and integer weights that add up to 2^128. A draw from 128 uniform bits
therefore follows the law exactly, and no distance to an ideal law is charged.

- *Window* (randomised response, K-ary response, piecewise). The input picks a place s in 0..N - W.
  The output is s + D modulo N, where D has the weight a at each of 0..W - 1 and b at the others.
  Whatever the input, W points have weight a and N - W have weight b: the cost is log(a / b), which
  is log[q (N - W) / ((1 - q) W)] with q = a W / 2^128. One point of W = 1 is randomised response.
- *Two points*. The input picks j in 0..J, and the output is 1 with weight b + j (a - b) / J of
  a + b = 2^128: between b and a for every input, so the cost is log(a / b) too.

The ledger books log(a / b) in units of 2^-40, rounded up. bounded_laws.py chooses a and b for an
epsilon.
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
# A guess of the mean square of t in [-1, 1], the place of a score in its range. It is public and
# only chooses between laws, so it costs nothing.
TYPICAL_SQUARE = 0.1
_PRECISION = 256
_LIMB = np.uint64(2**32 - 1)
_HALF_WORD = np.uint64(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedNoise:
    """One law for numbers in [low, high]: N points, W of them in the window, weights a and b.

    `steps` is the largest place an input can have; `pure_units` is the price of a release in which
    one row moves one coordinate.
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
        """Change of the mean output when the input moves by one place."""
        if self.kind == "two_point":
            return (self.weight_in - self.weight_out) / (self.steps * WHOLE)
        return (self.weight_in - self.weight_out) * self.window / WHOLE

    @property
    def variance_terms(self) -> tuple[float, float]:
        """(v0, v1): the noise variance of a decoded number is v0 + v1 t^2.

        t in [-1, 1] is the number's place in the range; both terms are in squared half widths.
        """
        middle, end = self._variance_at(self.steps / 2), self._variance_at(0.0)
        scale = (2.0 / (self.steps * self.slope)) ** 2
        return middle * scale, (end - middle) * scale

    @property
    def noise_std(self) -> float:
        """Standard deviation of a decoded number's noise, the largest over all inputs."""
        v0, v1 = self.variance_terms
        return self.half_width * math.sqrt(v0 + max(v1, 0.0))

    @property
    def half_width(self) -> float:
        """Half the width of the range."""
        return (self.high - self.low) / 2.0

    def variance(self, mean_square: float = TYPICAL_SQUARE) -> float:
        """Mean noise variance of numbers whose places t in [-1, 1] have this mean square."""
        v0, v1 = self.variance_terms
        return self.half_width**2 * (v0 + v1 * mean_square)

    def places(self, values: FloatVector) -> Points:
        """The place of each number; NaN counts as 0, a number out of range as the nearer end."""
        inside = np.clip(np.nan_to_num(values, nan=0.0), self.low, self.high)
        share = (inside - self.low) / (self.high - self.low)
        return np.clip(np.rint(share * self.steps), 0, self.steps).astype("<i8")

    def draw(self, places: Points, high: Words, low: Words) -> Points:
        """Draw a point for each place from 128 uniform bits; every draw does the same work."""
        if self.kind == "two_point":
            return self._below_threshold(places, high, low)
        moved: Points = (places + _shift(self).draw(high, low)) % self.points
        return moved

    def decode(self, points: Points) -> FloatVector:
        """Numbers whose mean is the input, rounded to its lattice; `variance` gives their noise."""
        places = (points - self._mean_at(0.0)) / self.slope
        step = (self.high - self.low) / self.steps
        return np.asarray(self.low + places * step, dtype=np.float64)

    def decode_classes(self, points: Points) -> NDArray[np.float64]:
        """One column per class: an unbiased estimate of whether the row belongs to that class."""
        if self.window != 1 or self.steps != self.points - 1:
            raise SettingsError("only K-ary response has classes to decode")
        hit = (points[:, None] == np.arange(self.points)[None, :]).astype(np.float64)
        return np.asarray((hit - self.weight_out / WHOLE) / self.slope, dtype=np.float64)

    def weights(self, place: int) -> list[int]:
        """The exact law of the output for one input, in units of 2^-128."""
        a, b = self.weight_in, self.weight_out
        if self.kind == "two_point":
            one = b + place * ((a - b) // self.steps)
            return [WHOLE - one, one]
        shifts = ((point - place) % self.points for point in range(self.points))
        return [a if shift < self.window else b for shift in shifts]

    def _mean_at(self, place: float) -> float:
        """Mean output for an input at this place; linear, so `place` may be a fraction."""
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
