"""Noise for an (epsilon, delta): the analytic Gaussian mechanism, and the classical formula.

It owns the curve delta(epsilon; mu) and its inverses; it knows no sensitivity and no account. The
curve is evaluated with 192 bits, so neither cancellation nor overflow affects it, and every result
is rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gmpy2

from hdpvfl_mq.errors import SettingsError

_PRECISION = 192
# Bisection stops at this relative width and returns the end on the safe side.
_RELATIVE = 2.0**-44
_LARGEST = 2.0**40
_EPSILON_MAX = 2.0**24  # exp(epsilon) overflows beyond 2^29, and no mu would seem too large
_SECANTS = 24  # steps of the secant search; a dozen are enough for every usual budget


@lru_cache(maxsize=256)  # a plan, its booking and a status ask for the same points; 0.6 KB each
def exact_delta(epsilon: float, mu: Any) -> Any:
    """Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2), as an mpfr number.

    *Domain.* epsilon >= 0, mu > 0. The difference cancels at most about 60 of the 192 bits.
    """
    with gmpy2.context(precision=_PRECISION):
        mu = gmpy2.mpfr(mu)
        if mu == 0:
            return gmpy2.mpfr(0)
        root = gmpy2.sqrt(gmpy2.mpfr(2))
        ratio, half = gmpy2.mpfr(epsilon) / mu, mu / 2
        above = gmpy2.erfc((ratio - half) / root) / 2
        below = gmpy2.erfc((ratio + half) / root) / 2
        return above - gmpy2.exp(gmpy2.mpfr(epsilon)) * below


@lru_cache(maxsize=256)
def mu_of(epsilon: float, delta: float) -> float:
    """Give the largest mu that is (epsilon, delta)-DP, rounded down."""
    check_budget(epsilon, delta)
    low, _ = bracket(lambda mu: exact_delta(epsilon, mu), delta, rising=True)
    return low


@lru_cache(maxsize=256)
def epsilon_of(mu: float, delta: float) -> float:
    """Give the smallest epsilon of a mu-GDP run at delta, rounded up; infinite beyond 2^40."""
    check_budget(1.0, delta)
    if mu == 0.0 or exact_delta(0.0, mu) <= delta:
        return 0.0
    if mu >= 2.0**19:
        return math.inf
    _, high = bracket(lambda epsilon: exact_delta(epsilon, mu), delta, rising=False)
    return high


def noise_std_analytic(sensitivity: float, epsilon: float, delta: float) -> float:
    """Delta / mu(epsilon, delta), rounded up: the smallest Gaussian noise that is enough."""
    return math.nextafter(sensitivity / mu_of(epsilon, delta), math.inf)


def noise_std_classical(sensitivity: float, epsilon: float, delta: float) -> float:
    """Give sqrt(2 ln(1.25 / delta)) Delta / epsilon, as published.

    *Domain.* Proved for epsilon < 1 only; too small from epsilon = 6.8 at delta = 0.01.
    """
    check_budget(epsilon, delta)
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse a pair that is not a valid budget."""
    if not 0.0 < epsilon <= _EPSILON_MAX or not 0.0 < delta < 1.0:
        raise SettingsError("epsilon must be positive and at most 2^24, delta between 0 and 1")


def bracket(reached: Callable[[float], Any], delta: float, *, rising: bool) -> tuple[float, float]:
    """Enclose the point where a curve crosses delta: (last point before it, first point after it).

    The two points are those of bisection. A secant search finds where bisection would end, and the
    exact curve is asked at both points of that end only; if they do not enclose the crossing,
    bisection finds them step by step.
    """

    def is_after(point: float) -> bool:
        value = reached(point)
        return bool(value > delta if rising else value <= delta)

    high = 1.0
    while not is_after(high) and high < _LARGEST:
        high *= 4.0
    low = high / 4.0
    while is_after(low):
        low, high = low / 4.0, low
    near = _crossing(reached, delta, (low, high))
    first, second = _halved(low, high, lambda middle: middle > near)
    if not is_after(first) and is_after(second):
        return first, second
    return _halved(low, high, is_after)


def _halved(low: float, high: float, is_after: Callable[[float], bool]) -> tuple[float, float]:
    while high - low > _RELATIVE * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_after(middle) else (middle, high)
    return low, high


def _crossing(reached: Callable[[float], Any], delta: float, ends: tuple[float, float]) -> float:
    """About where the logarithm of a curve crosses that of delta: the Illinois method."""

    def above(point: float) -> float:
        value = reached(point)
        return float(gmpy2.log(value) - gmpy2.log(delta)) if value > 0 else -_LARGEST

    (a, b), (at_a, at_b) = ends, (above(ends[0]), above(ends[1]))
    for _ in range(_SECANTS):
        if at_a == at_b or abs(b - a) < _RELATIVE / 16 * abs(b):
            break
        point = b - at_b * (b - a) / (at_b - at_a)
        at_point = above(point)
        if at_point * at_b < 0:
            a, at_a = b, at_b
        else:
            at_a /= 2.0
        b, at_b = point, at_point
        if abs(at_b) < _RELATIVE / 1024:
            break
    return b
