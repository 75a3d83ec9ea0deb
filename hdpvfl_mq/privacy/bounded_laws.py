"""The bounded law for an epsilon: randomised response, K-ary, piecewise, two points.

It owns the choice of points, window and integer weights; bounded.py owns drawing and cost.

*Guarantee.* Rounding brings the weights a and b closer together, so log(a / b) is at most the
requested epsilon, and the booked cost is at most that epsilon in units, rounded up.
"""

from __future__ import annotations

import math
from typing import Any

import gmpy2

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.bounded import TYPICAL_SQUARE, BoundedNoise
from hdpvfl_mq.privacy.table import WHOLE
from schemas.privacy import BoundedKind

SMALLEST_EPSILON, LARGEST_EPSILON = 2.0**-20, 16.0
MOST_CLASSES = 1024
_WINDOW_BITS = 8
_MOST_POINTS = 2**16
_TWO_POINT_BITS = 16
_PRECISION = 256


def label_noise(epsilon: float, *, low: float = 0.0, high: float = 1.0) -> BoundedNoise:
    """Randomised response of two numbers: keep one with probability e^epsilon / (1 + e^epsilon)."""
    return _window("randomised_response", (low, high), 2, 1, epsilon)


def class_noise(classes: int, epsilon: float) -> BoundedNoise:
    """K-ary randomised response for a class 0..K - 1."""
    if not 2 <= classes <= MOST_CLASSES:
        raise SettingsError(f"K-ary response has 2 to {MOST_CLASSES} classes")
    return _window("randomised_response", (0.0, classes - 1.0), classes, 1, epsilon)


def number_noise(
    low: float, high: float, epsilon: float, *, mean_square: float = TYPICAL_SQUARE
) -> BoundedNoise:
    """Piecewise or two points for a number in [low, high], whichever has less variance.

    `mean_square` is a public guess of where the numbers lie, as in `BoundedNoise.variance`.
    """
    both = (piecewise(low, high, epsilon), two_point(low, high, epsilon))
    return min(both, key=lambda noise: noise.variance(mean_square))


def piecewise(low: float, high: float, epsilon: float) -> BoundedNoise:
    """The piecewise mechanism on integers: (N - W) / W is near e^(epsilon / 2), W a power of two.

    With b a multiple of W, a = (2^128 - (N - W) b) / W is an integer.
    """
    _check(low, high, epsilon)
    ratio, bits = math.exp(epsilon / 2.0), _WINDOW_BITS
    while 2**bits * (ratio + 1.0) > _MOST_POINTS:
        bits -= 1
    window = 2**bits
    return _window("piecewise", (low, high), window + round(window * ratio), window, epsilon)


def two_point(low: float, high: float, epsilon: float) -> BoundedNoise:
    """Releases one of two points with a probability that is linear in the number."""
    _check(low, high, epsilon)
    steps = 2**_TWO_POINT_BITS
    # With this unit a - b = 2^128 - 2 b is a multiple of the steps.
    b = _rounded_up(gmpy2.mpz(1), epsilon, unit=steps // 2)
    return BoundedNoise(
        kind="two_point",
        low=low,
        high=high,
        points=2,
        window=1,
        weight_in=WHOLE - b,
        weight_out=b,
        steps=steps,
    )


def _window(
    kind: BoundedKind, span: tuple[float, float], points: int, window: int, epsilon: float
) -> BoundedNoise:
    low, high = span
    _check(low, high, epsilon)
    outside = points - window
    b = _rounded_up(gmpy2.mpq(outside, window), epsilon, unit=window, share=window)
    return BoundedNoise(
        kind=kind,
        low=low,
        high=high,
        points=points,
        window=window,
        weight_in=(WHOLE - outside * b) // window,
        weight_out=b,
        steps=outside,
    )


def _rounded_up(outside: Any, epsilon: float, *, unit: int, share: int = 1) -> int:
    """2^128 / (share (outside + e^epsilon)), rounded up to a multiple of `unit`.

    Rounding up is safe: a larger b gives a smaller ratio a / b.
    """
    with gmpy2.context(precision=_PRECISION, round=gmpy2.RoundDown):
        whole = share * (gmpy2.mpfr(outside) + gmpy2.exp(gmpy2.mpfr(epsilon)))
    with gmpy2.context(precision=_PRECISION, round=gmpy2.RoundUp):
        least = gmpy2.mpfr(WHOLE) / whole / unit
        return int(gmpy2.ceil(least)) * unit


def _check(low: float, high: float, epsilon: float) -> None:
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise SettingsError(
            f"bounded noise takes an epsilon of {SMALLEST_EPSILON:.1g} to {LARGEST_EPSILON:g}, "
            f"not {epsilon:g}"
        )
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingsError("bounded noise needs a finite range: low below high")
