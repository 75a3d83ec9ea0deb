"""Gaussian and pure releases together: delta(epsilon) of a mu and a list of pure epsilons.

It owns that curve, its inverses and an attacker's advantage; it knows no account and no mechanism.
Every pure mechanism is dominated by randomised response of the same epsilon (Kairouz, Oh and
Viswanath 2015), whose privacy loss is +e with p = e^e / (1 + e^e) and -e otherwise. So, exactly,

    delta(epsilon) = sum over sign patterns of their probability times
                     delta_GDP(epsilon - sum of signed e_j; mu),      max(0, 1 - e^...) for mu = 0.

Equal epsilons are counted together, so m of them make m + 1 terms and not 2^m. With more than
MOST_PATTERNS terms the result is a little above the exact one; otherwise it is exact.

*Guarantee.* The curve holds for a mu and a list that are fixed beforehand, in whatever order
Gaussian and pure releases are then interleaved. It is not a filter between the two kinds: choosing
pure or Gaussian adaptively until delta is reached can spend up to twice the cap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import gmpy2

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.calibration import bracket, check_budget, exact_delta
from schemas.privacy import PURE_UNIT_BITS

_PRECISION = 192
# More sums of signed epsilons than this are rounded up to a grid, which over-counts.
MOST_PATTERNS = 128
_MOST_ON_THE_WAY = 2**11

PureUnits = tuple[int, ...]
Pattern = tuple[Any, Any]  # sum of signed epsilons, probability


def pure_units_of(epsilon: float) -> int:
    """A pure epsilon in units of 2^-40, rounded up."""
    if not 0.0 <= epsilon <= 1e3:
        raise SettingsError("a pure epsilon lies between 0 and 1000")
    numerator, denominator = epsilon.as_integer_ratio()
    return -(-(numerator << PURE_UNIT_BITS) // denominator)


def delta_with_pure(epsilon: float, mu: Any, pure: PureUnits) -> Any:
    """delta(epsilon) of mu-GDP releases and pure ones of these units, as an mpfr number."""
    with gmpy2.context(precision=_PRECISION):
        mu, total = gmpy2.mpfr(mu), gmpy2.mpfr(0)
        for loss, probability in patterns(tuple(sorted(pure))):
            total += probability * _delta_at(gmpy2.mpfr(epsilon) - loss, mu)
        return total


def _delta_at(epsilon: Any, mu: Any) -> Any:
    if mu == 0:
        return 1 - gmpy2.exp(epsilon) if epsilon < 0 else gmpy2.mpfr(0)
    return exact_delta(epsilon, mu)


@lru_cache(maxsize=64)
def patterns(pure: PureUnits) -> tuple[Pattern, ...]:
    """Every sum of signed epsilons with its probability; equal epsilons are binomial."""
    found: dict[int, Any] = {0: gmpy2.mpfr(1)}
    with gmpy2.context(precision=_PRECISION):
        for units, count in sorted(Counter(units for units in pure if units).items()):
            likely = 1 / (1 + gmpy2.exp(-_epsilon(units)))
            after: dict[int, Any] = {}
            for minus in range(count + 1):
                signed = (count - 2 * minus) * units
                chance = math.comb(count, minus) * likely ** (count - minus) * (1 - likely) ** minus
                for loss, probability in found.items():
                    known = after.get(loss + signed, gmpy2.mpfr(0))
                    after[loss + signed] = known + probability * chance
            found = _merged(after, at_most=_MOST_ON_THE_WAY)
        found = _merged(found, at_most=MOST_PATTERNS)
        return tuple((_epsilon(loss), probability) for loss, probability in sorted(found.items()))


def _merged(found: dict[int, Any], *, at_most: int) -> dict[int, Any]:
    """Round the privacy losses up to a grid if there are more than `at_most` of them."""
    if len(found) <= at_most:
        return found
    grid = -(-(max(found) - min(found)) // (at_most - 1))
    merged: dict[int, Any] = {}
    for loss, probability in found.items():
        above = -(-loss // grid) * grid
        merged[above] = merged.get(above, gmpy2.mpfr(0)) + probability
    return merged


def _epsilon(units: int) -> Any:
    return gmpy2.mpfr(units) / 2**PURE_UNIT_BITS


@lru_cache(maxsize=256)
def mu_beside(epsilon: float, delta: float, pure: PureUnits) -> float:
    """The largest mu that is (epsilon, delta)-DP together with these pure releases, rounded down.

    SettingsError if the pure releases alone exceed (epsilon, delta).
    """
    check_budget(epsilon, delta)
    if delta_with_pure(epsilon, 0, pure) >= delta:
        total = sum(pure) * 2.0**-PURE_UNIT_BITS
        raise SettingsError(
            f"pure epsilons of {total:g} together leave nothing of epsilon {epsilon:g} at delta "
            f"{delta:g}: take smaller or fewer"
        )
    low, _ = bracket(lambda mu: delta_with_pure(epsilon, mu, pure), delta, rising=True)
    return low


@lru_cache(maxsize=256)
def epsilon_with_pure(mu: float, delta: float, pure: PureUnits) -> float:
    """The smallest epsilon of mu and pure releases at delta, rounded up; infinite beyond 2^40."""
    check_budget(1.0, delta)
    if delta_with_pure(0.0, mu, pure) <= delta:
        return 0.0
    if mu >= 2.0**19:
        return math.inf
    _, high = bracket(lambda epsilon: delta_with_pure(epsilon, mu, pure), delta, rising=False)
    return high


def advantage(mu: float, pure: Iterable[int] = ()) -> float:
    """Bound an attacker's gain over guessing which of two neighbours it sees: delta(0).

    tanh(e / 2) for one pure epsilon, 2 Phi(mu / 2) - 1 for a Gaussian run.
    """
    return float(delta_with_pure(0.0, mu, tuple(pure)))
