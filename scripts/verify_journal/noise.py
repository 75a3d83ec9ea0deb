"""Noise of a release for a budget: grid, width, and what it costs round by round.

It knows no method and no bound. Widths and prices are rounded as the ledger rounds them, so every
party has the same integers. ValueError: no noise fits, and no party may train.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from itertools import accumulate

from .bounded import Law, pure_units
from .curves import PI, TAU_SHARE, TAU_UNITS, affordable, erfc, mu_beside, precise

MOST = 2**63 - 1
SPACING, RUNG = 64, 160.0  # of the ladder of tables that makes wide noise


@dataclass(frozen=True)
class Noise:
    """The noise of one kind of release, and its price after each round; none if infinite."""

    std: float
    exponent: int
    mu2: tuple[int, ...] = (0,)
    tau: tuple[int, ...] = (0,)
    rounds: int = 1
    disclosed: int = 0
    law: Law | None = None

    @property
    def infinite(self) -> bool:
        return not self.mu2

    @property
    def mechanism(self) -> str:
        if self.law:
            return self.law.kind
        return "disclosed" if self.disclosed else "lattice_gaussian" if self.mu2 else "exact"

    @property
    def pure(self) -> tuple[int, ...]:
        return (pure_units(self.law),) if self.law else ()

    def stated(self) -> bytes:  # in the digest of a plan
        law = str(self.law) if self.law else ""
        return (repr((self.std, self.exponent, self.rounds)) + law).encode()


@dataclass(frozen=True)
class Part:
    """What one release of a run may move by (a square, after each round), and its share of mu^2."""

    squares: list[float]
    values: list[int]
    exponent: int
    bound: float
    share: float = 1.0
    symmetric: bool = False


def unplanned(rounds: int) -> Noise:
    """No noise, at infinite cost."""
    return Noise(0.0, 0, (), (), rounds)


def bounded(law: Law, mean_square: float) -> Noise:
    return Noise(math.sqrt(law.variance(mean_square)), 0, law=law)


def rounded_up(ratio: float) -> float:
    """A ratio keeps 16 bits."""
    mantissa, exponent = math.frexp(ratio)
    return math.ldexp(math.ceil(math.ldexp(mantissa, 16)), exponent - 16)


@lru_cache(maxsize=128)
@precise
def tau_of(ratio: float) -> int:
    """The distance of one sample to the exact law, rounded up: table entries, tails, ripples."""
    if not 0.25 <= ratio <= 2.0**44:
        raise ValueError("noise out of range")
    rungs = 0
    while ratio > 512.0 * SPACING**rungs:
        rungs += 1
    below = [float(sum((RUNG * SPACING**i) ** 2 for i in range(j))) for j in range(rungs + 1)]
    distance = table(RUNG if rungs else ratio, rounded_tail)
    for j in range(1, rungs + 1):
        last = j == rungs
        top = math.sqrt(ratio**2 - below[j]) / SPACING**j * (1 + 2.0**-45)
        distance += table(top if last else RUNG, discrete_tail)
        total = ratio**2 if last else below[j + 1]
        narrow = below[j] * (total - below[j]) / total * (1 - 2.0**-40)
        ripple = Decimal("2.5") * (-2 * PI * PI * Decimal(narrow) / SPACING ** (2 * j)).exp()
        distance += ripple / (1 - ripple)
    return int((distance * TAU_UNITS).to_integral_value(ROUND_CEILING))


def table(std: float, tail: Callable[[Decimal, int], Decimal]) -> Decimal:
    """Half a unit of 2^-128 for each entry, and the tails beyond 13.5 deviations."""
    reach = int(13.5 * std) + 2
    return Decimal(2 * reach + 1) / 2**129 + tail(Decimal(std), reach) + Decimal(2) ** -200


def rounded_tail(std: Decimal, reach: int) -> Decimal:
    return erfc((reach + Decimal("0.5")) / (std * Decimal(2).sqrt()))


def discrete_tail(std: Decimal, reach: int) -> Decimal:
    scale = -1 / (2 * std * std)
    first = ((reach + 1) ** 2 * scale).exp()
    tail = first / (1 - ((2 * reach + 3) * scale).exp())
    return 2 * tail / (std * (2 * PI).sqrt())  # the weights of all integers, to 400 digits


def priced(part: Part, ratio: float) -> Noise:
    """What each round costs with a noise of so many grid steps."""
    std = ratio * 2.0**part.exponent
    widths = (ratio, rounded_up(ratio / math.sqrt(2.0))) if part.symmetric else (ratio,)
    sample = max(tau_of(width) for width in widths)
    units = [square / std**2 * 2.0**40 * (1 + 2.0**-48) for square in part.squares]
    tau = tuple(count * sample for count in accumulate(part.values))
    rounds = len(units)
    if not all(x < MOST / 2 for x in units) or tau[-1] > MOST:
        return Noise(std, part.exponent, (), (), rounds)
    if part.bound + 16 * std > 2.0**61 * 2.0**part.exponent:
        raise ValueError("values that no integer holds")
    return Noise(std, part.exponent, tuple(math.ceil(x) for x in units), tau, rounds)


def epsilon_within_tau(budget: dict[str, float], values: int) -> float:
    """At most the budget's; a larger one would leave the sampler too much of delta."""
    tau = values * 2**26 * 2.0**-140
    return min(budget["epsilon"], math.log(budget["delta"] / (TAU_SHARE * 2.0 * tau)) - 1.0)


def total(noises: list[Noise]) -> tuple[int, int, tuple[int, ...]]:
    """The price of whole runs together: mu^2, tau, pure epsilons; infinite ones are left out."""
    finite = [noise for noise in noises if not noise.infinite]
    mu2, tau = sum(n.mu2[-1] for n in finite), sum(n.tau[-1] for n in finite)
    return mu2, tau, tuple(sorted(units for n in finite for units in n.pure))


def fitted(
    parts: dict[str, Part], budget: dict[str, float], pure: tuple[int, ...] = ()
) -> dict[str, Noise]:
    """The least noise of parts that share a budget, in steps of 2^-16."""
    values = sum(sum(part.values) for part in parts.values())
    mu = mu_beside(epsilon_within_tau(budget, values), budget["delta"], pure)
    least = 0.25 * math.sqrt(2.0)
    ratios = {
        name: max(math.sqrt(part.squares[-1] / part.share) / mu / 2.0**part.exponent, least)
        for name, part in parts.items()
    }
    for _ in range(8):
        found = {name: priced(part, rounded_up(ratios[name])) for name, part in parts.items()}
        if within(budget, [*found.values()], pure):
            return found
        ratios = {name: ratio * (1 + 2.0**-16) for name, ratio in ratios.items()}
    raise ValueError("no noise fits this budget")


def fitted_alone(part: Part, budget: dict[str, float]) -> Noise:
    """The least noise of the only release of a party, in steps of 2^-17."""
    mu = mu_beside(epsilon_within_tau(budget, sum(part.values)), budget["delta"])
    ratio = rounded_up(max(math.sqrt(part.squares[-1]) / mu / 2.0**part.exponent, 0.25))
    for _ in range(8):
        found = priced(part, ratio)
        if within(budget, [found]):
            return found
        ratio = rounded_up(ratio * (1 + 2.0**-17))
    raise ValueError("no noise fits this budget")


def within(budget: dict[str, float], noises: list[Noise], pure: tuple[int, ...] = ()) -> bool:
    mu2, tau, _ = total(noises)
    fits = affordable(budget["epsilon"], budget["delta"], mu2, tau, pure)
    return fits and not any(noise.infinite for noise in noises)
