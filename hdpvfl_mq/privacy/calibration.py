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
    low, _ = bracket(lambda mu: bool(exact_delta(epsilon, mu) > delta))
    return low


@lru_cache(maxsize=256)
def epsilon_of(mu: float, delta: float) -> float:
    """Give the smallest epsilon of a mu-GDP run at delta, rounded up; infinite beyond 2^40."""
    check_budget(1.0, delta)
    if mu == 0.0 or exact_delta(0.0, mu) <= delta:
        return 0.0
    if mu >= 2.0**19:
        return math.inf
    _, high = bracket(lambda epsilon: bool(exact_delta(epsilon, mu) <= delta))
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
    if not 0.0 < epsilon < math.inf or not 0.0 < delta < 1.0:
        raise SettingsError("epsilon must be positive and finite, delta between 0 and 1")


def enclosed(excess: Callable[[float], Any], guess: float) -> float | None:
    """The point where a falling `excess` reaches zero, rounded up, from a guess in doubles.

    The secant at the guess gives the point; the excess on either side proves it, to the width at
    which bisection stops. None if the guess was not good enough for that.
    """
    step = guess * 2.0**-20
    left, right = excess(guess), excess(guess + step)
    if not left > right:
        return None
    root = guess + step * float(left / (left - right))
    low, high = root * (1.0 - _RELATIVE / 2.0), root * (1.0 + _RELATIVE / 2.0)
    return high if excess(low) > 0 >= excess(high) else None


def bracket(above: Callable[[float], bool]) -> tuple[float, float]:
    """Enclose the point where `above` turns true: (last point below it, first point above it)."""
    high = 1.0
    while not above(high) and high < _LARGEST:
        high *= 4.0
    low = high / 4.0
    while above(low):
        low, high = low / 4.0, low
    while high - low > _RELATIVE * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if above(middle) else (middle, high)
    return low, high
