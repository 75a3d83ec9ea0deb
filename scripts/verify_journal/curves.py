"""delta(epsilon) of Gaussian and pure releases together, to 60 digits, and its inverse in mu.

It knows no release and no ledger. docs/privacy.md has the formulas; all roundings are the ledger's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, TypeVar

Result = TypeVar("Result")
DIGITS = 60
UNITS = 2**40  # of mu^2 and of pure epsilons
TAU_UNITS = 2**140
TAU_SHARE = 100  # the sampler may take this part of delta
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
)
# Sums of signed epsilons beyond these numbers are rounded up to a grid: after each, and at the end.
SUMS = (2**11, 128)


def precise(function: Callable[..., Result]) -> Callable[..., Result]:
    """Compute with 60 digits, and 30 more for what cancels."""

    def with_digits(*given: Any) -> Result:
        with localcontext(Context(prec=DIGITS + 30, Emin=-(10**12), Emax=10**12)):
            return function(*given)

    return with_digits


def scaled_erfc(x: Decimal) -> Decimal:
    """exp(x^2) erfc(x) for x >= 0: a series of positive terms, or a continued fraction."""
    if x >= 8:
        fraction = x
        for n in range(160, 0, -1):
            fraction = x + Decimal(n) / 2 / fraction
        return 1 / (PI.sqrt() * fraction)
    term = total = 2 * x / PI.sqrt()
    n = 0
    while term > total.scaleb(-DIGITS - 30):
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
        total += term
    return (x * x).exp() - total


def erfc(x: Decimal) -> Decimal:
    return 2 - erfc(-x) if x < 0 else (-x * x).exp() * scaled_erfc(x)


def delta_gaussian(epsilon: Decimal, mu: Decimal) -> Decimal:
    """Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)."""
    if mu == 0:
        return 1 - epsilon.exp() if epsilon < 0 else Decimal(0)
    root = Decimal(2).sqrt()
    above, below = ((epsilon / mu + sign * mu / 2) / root for sign in (-1, 1))
    return (erfc(above) - epsilon.exp() * erfc(below)) / 2


def merged(found: dict[int, Decimal], most: int) -> dict[int, Decimal]:
    if len(found) <= most:
        return found
    grid = -(-(max(found) - min(found)) // (most - 1))
    sums: dict[int, Decimal] = {}
    for loss, chance in found.items():
        above = -(-loss // grid) * grid
        sums[above] = sums.get(above, Decimal(0)) + chance
    return sums


@lru_cache(maxsize=64)
def losses(pure: tuple[int, ...]) -> dict[int, Decimal]:
    """Sums of signed epsilons and their chances: randomised response is the worst pure release."""
    found = {0: Decimal(1)}
    for units, count in sorted(Counter(pure).items()):
        kept = 1 / (1 + (-Decimal(units) / UNITS).exp())
        after: dict[int, Decimal] = {}
        for minus in range(count + 1):
            chance = math.comb(count, minus) * kept ** (count - minus) * (1 - kept) ** minus
            for loss, known in found.items():
                at = loss + (count - 2 * minus) * units
                after[at] = after.get(at, Decimal(0)) + known * chance
        found = merged(after, SUMS[0])
    return merged(found, SUMS[1])


def delta_of(epsilon: Decimal, mu: Decimal, pure: tuple[int, ...]) -> Decimal:
    chances = losses(pure).items()
    parts = (p * delta_gaussian(epsilon - Decimal(loss) / UNITS, mu) for loss, p in chances)
    return sum(parts, Decimal(0))


def crossing(is_after: Callable[[Decimal], bool]) -> tuple[float, float]:
    """Bisection: the last float before a curve crosses, and the first after it."""
    high = 1.0
    while not is_after(Decimal(high)) and high < 2.0**40:
        high *= 4.0
    low = high / 4.0
    while is_after(Decimal(low)):
        low, high = low / 4.0, low
    while high - low > 2.0**-44 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_after(Decimal(middle)) else (middle, high)
    return low, high


@lru_cache(maxsize=64)
@precise
def mu_beside(epsilon: float, delta: float, pure: tuple[int, ...] = ()) -> float:
    """The largest mu within (epsilon, delta) beside pure epsilons, rounded down."""
    most = Decimal(delta)
    if not epsilon > 0.0 or delta_of(Decimal(epsilon), Decimal(0), pure) >= most:
        raise ValueError("nothing is left for Gaussian noise")
    return crossing(lambda mu: delta_of(Decimal(epsilon), mu, pure) > most)[0]


def drift(epsilon: Decimal, tau: int) -> Decimal:
    """(1 + exp(epsilon)) tau: what the sampler's distance to the exact law takes of delta."""
    return (1 + epsilon.exp()) * tau / TAU_UNITS


@lru_cache(maxsize=256)
@precise
def affordable(epsilon: float, delta: float, mu2: int, tau: int, pure: tuple[int, ...]) -> bool:
    """Whether these sums, in units, are (epsilon, delta)."""
    lost, most = drift(Decimal(epsilon), tau), Decimal(delta)
    if lost * TAU_SHARE <= most:
        mu = (Decimal(mu2) / UNITS).sqrt()
        return delta_of(Decimal(epsilon), mu, pure) + lost <= most
    return epsilon_of(delta, mu2, tau, pure) <= epsilon


@precise
def epsilon_of(delta: float, mu2: int, tau: int, pure: tuple[int, ...] = ()) -> float:
    """The smallest epsilon of these sums, rounded up; infinite if none is enough."""
    if not mu2 and not tau and not pure:
        return 0.0
    mu = float((Decimal(mu2) / UNITS).sqrt()) * (1 + 2.0**-50)
    epsilon, left = smallest(mu, delta, pure), Decimal(delta)
    for _ in range(64):
        epsilon *= 1.0 + 2.0**-40
        lost = drift(Decimal(epsilon), tau) if epsilon <= 2.0**20 else left
        if lost * TAU_SHARE > left:
            return math.inf
        if delta_of(Decimal(epsilon), Decimal(mu), pure) + lost <= left:
            return epsilon
        epsilon = smallest(mu, float(left - lost), pure)
    return math.inf


def smallest(mu: float, delta: float, pure: tuple[int, ...]) -> float:
    width, most = Decimal(mu), Decimal(delta)
    if delta_of(Decimal(0), width, pure) <= most:
        return 0.0
    if mu >= 2.0**19:
        return math.inf
    return crossing(lambda epsilon: delta_of(epsilon, width, pure) <= most)[1]
