"""Laws of bounded noise for one number (docs/bounded-noise.md): points, integer weights, price.

It knows no release. Weights are in units of 2^-128.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from .curves import UNITS, precise

WHOLE = 2**128


@dataclass(frozen=True)
class Law:
    """A window of W of N points with weight a, the others b; or two points, linear in the input."""

    kind: str
    low: float
    high: float
    points: int
    window: int
    weight_in: int
    weight_out: int
    steps: int

    def __str__(self) -> str:  # as the digest of a plan has it
        ends = f"kind={self.kind!r}, low={self.low!r}, high={self.high!r}"
        size = f"points={self.points}, window={self.window}, weight_in={self.weight_in}"
        return f"BoundedNoise({ends}, {size}, weight_out={self.weight_out}, steps={self.steps})"

    @property
    def slope(self) -> float:
        if self.kind == "two_point":
            return (self.weight_in - self.weight_out) / (self.steps * WHOLE)
        return (self.weight_in - self.weight_out) * self.window / WHOLE

    def mean_at(self, place: float) -> float:
        if self.kind == "two_point":
            return self.weight_out / WHOLE + place * self.slope
        flat = self.weight_out / WHOLE * self.points * (self.points - 1) / 2.0
        return flat + self.slope * (place + (self.window - 1) / 2.0)

    def variance_at(self, place: float) -> float:
        mean, n, w = self.mean_at(place), self.points, self.window
        if self.kind == "two_point":
            return mean * (1.0 - mean)
        b, extra = self.weight_out / WHOLE, (self.weight_in - self.weight_out) / WHOLE
        first, last = place - mean, place + w - 1 - mean
        inside = w * ((first + last) / 2.0) ** 2 + w * (w * w - 1) / 12.0
        every = n * ((n - 1) / 2.0 - mean) ** 2 + n * (n * n - 1) / 12.0
        return b * every + extra * inside

    def variance(self, mean_square: float) -> float:
        """Of numbers whose places in [-1, 1] have this mean square."""
        middle, end = self.variance_at(self.steps / 2), self.variance_at(0.0)
        scale = (2.0 / (self.steps * self.slope)) ** 2
        half = (self.high - self.low) / 2.0
        return half**2 * (middle * scale + (end - middle) * scale * mean_square)

    def largest(self) -> float:
        """The largest absolute value of a decoded point."""
        step = (self.high - self.low) / self.steps
        places = [(point - self.mean_at(0.0)) / self.slope for point in (0, self.points - 1)]
        return max(abs(self.low + place * step) for place in places)


@precise
def pure_units(law: Law) -> int:
    """log(a / b) in units of 2^-40, rounded up."""
    cost = (Decimal(law.weight_in) / Decimal(law.weight_out)).ln() * UNITS
    return int(cost.to_integral_value(ROUND_CEILING))


@precise
def outer_weight(points: int, window: int, epsilon: float, unit: int) -> int:
    """b: 2^128 / (N - W + W e^epsilon), rounded up to a multiple of the unit."""
    whole = points - window + window * Decimal(epsilon).exp()
    return int((WHOLE / whole / unit).to_integral_value(ROUND_CEILING)) * unit


def window_law(kind: str, ends: tuple[float, float], points: int, window: int, e: float) -> Law:
    b = outer_weight(points, window, e, window)
    inside = (WHOLE - (points - window) * b) // window
    return Law(kind, *ends, points, window, inside, b, points - window)


def checked(epsilon: float) -> float:
    if not 2.0**-20 <= epsilon <= 16.0:
        raise ValueError("no epsilon for bounded noise")
    return epsilon


def label_law(epsilon: float) -> Law:
    """Randomised response of two labels."""
    return window_law("randomised_response", (-1.0, 1.0), 2, 1, checked(epsilon))


def number_law(bound: float, epsilon: float, mean_square: float = 0.1) -> Law:
    """Piecewise or two points for a number in [-bound, bound], whichever has less variance."""
    ends, ratio, window = (-bound, bound), math.exp(checked(epsilon) / 2.0), 2**8
    while window * (ratio + 1.0) > 2**16:
        window //= 2
    pieces = window_law("piecewise", ends, window + round(window * ratio), window, epsilon)
    b = outer_weight(2, 1, epsilon, 2**15)
    points = Law("two_point", *ends, 2, 1, WHOLE - b, b, 2**16)
    return min(pieces, points, key=lambda law: law.variance(mean_square))
