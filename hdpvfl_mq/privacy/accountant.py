"""Sums of spend events, and the epsilon they amount to.

It owns the fold of events and the (epsilon, delta) reading of the sums; it knows no store, no cap
and no run. Events compose as Gaussian differential privacy: the squares of mu add up, whatever was
chosen after seeing earlier releases, as long as a cap fixed beforehand is kept (a privacy filter).
Pure epsilons of bounded mechanisms are kept beside that sum, one by one, and never turn into it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gmpy2

from hdpvfl_mq.privacy.pure import PureUnits, delta_with_pure, epsilon_with_pure
from schemas.privacy import MU2_UNIT_BITS, TAU_UNIT_BITS, Budget, SpendEvent

# The sampler's distance to the exact law may use at most 1 / TAU_SHARE of delta.
TAU_SHARE = 100
_LARGEST_SHOWN = 2.0**20


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums over releases: units of mu^2, units of tau, and how many cost infinitely much.

    `pure` lists the pure epsilons in units, ascending: one for each release or for each slot.
    """

    mu2_units: int = 0
    tau_units: int = 0
    exact: int = 0
    pure: PureUnits = ()

    def plus(self, event: SpendEvent) -> Spent:
        """Add one event."""
        own = (event.pure_units,) if event.pure_units else ()
        return Spent(
            self.mu2_units + event.mu2_units,
            self.tau_units + event.tau_units,
            self.exact + (event.mechanism == "exact"),
            tuple(sorted(self.pure + own)),
        )


def fold(events: Iterable[SpendEvent]) -> Spent:
    """Add up events in any order."""
    spent = Spent()
    for event in events:
        spent = spent.plus(event)
    return spent


def affordable(budget: Budget, mu2_units: int, tau_units: int, pure: PureUnits = ()) -> bool:
    """Say whether these sums are (epsilon, delta)-DP for the budget's pair.

    *Guarantee.* For some e <= epsilon: delta(e; sqrt(mu^2), pure) + (1 + exp(e)) tau <= delta, and
    the second part at most delta / 100. (e, delta)-DP implies (epsilon, delta)-DP; a smaller e is
    needed where exp(epsilon) tau alone would exceed delta.
    """
    with gmpy2.context(precision=192):
        drift = _drift(budget.epsilon, tau_units)
        if drift * TAU_SHARE <= budget.delta:
            reached = delta_with_pure(budget.epsilon, _mu(mu2_units), pure)
            return bool(reached + drift <= budget.delta)
    return epsilon_shown(Spent(mu2_units, tau_units, 0, pure), budget.delta) <= budget.epsilon


@lru_cache(maxsize=16)  # a status shows the same sums several times
def epsilon_shown(spent: Spent, delta: float) -> float:
    """The smallest epsilon of these sums at delta, rounded up; infinite if no epsilon is enough."""
    if spent.exact:
        return math.inf
    if spent.mu2_units == 0 and spent.tau_units == 0 and not spent.pure:
        return 0.0
    mu = float(_mu(spent.mu2_units)) * (1 + 2.0**-50)
    epsilon = epsilon_with_pure(mu, delta, spent.pure)
    # Raise epsilon until the sampler's share fits; with tau near 2^-100 the first try succeeds.
    for _ in range(64):
        epsilon *= 1.0 + 2.0**-40
        if epsilon > _LARGEST_SHOWN:
            return math.inf
        with gmpy2.context(precision=192):
            drift = _drift(epsilon, spent.tau_units)
            if drift * TAU_SHARE > delta:
                return math.inf
            if delta_with_pure(epsilon, mu, spent.pure) + drift <= delta:
                return epsilon
        epsilon = epsilon_with_pure(mu, float(delta - drift), spent.pure)
    return math.inf


def _mu(mu2_units: int) -> Any:
    with gmpy2.context(precision=192):
        return gmpy2.sqrt(gmpy2.mpfr(mu2_units) / 2**MU2_UNIT_BITS)


def _drift(epsilon: float, tau_units: int) -> Any:
    with gmpy2.context(precision=192):
        return (1 + gmpy2.exp(gmpy2.mpfr(epsilon))) * tau_units / gmpy2.exp2(TAU_UNIT_BITS)
