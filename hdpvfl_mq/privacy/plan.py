"""A party's noise for one run, from public quantities only: width, grid, cost of each round.

It owns the choice of grid and noise and the integers that the ledger books; it knows no data,
no seed and no message. Every party can compute every other party's plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.privacy.accountant import TAU_SHARE, Spent, affordable, epsilon_shown
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.noise import NARROWEST_RATIO, ladder, round_ratio
from hdpvfl_mq.privacy.pure import PureUnits, mu_beside
from schemas.base import INT64_MAX
from schemas.methods import Guarantee
from schemas.privacy import MU2_UNIT_BITS, TAU_UNIT_BITS, BoundedKind, Budget

FloatArray = NDArray[np.float64]
# The minimum charged per coordinate for floating-point arithmetic; see `float_slack`.
FLOAT_SLACK = 2.0**-30
FINEST_EXPONENT, COARSEST_EXPONENT = -30, 20
# Integers on the wire stay below 2^62; a plan whose values could reach it is refused.
_LARGEST_INTEGER = 2.0**61
# No ladder up to the widest ratio has a larger distance per sample; `fit_noise` checks that.
_TAU_UNITS_MAX = 2**26
_TOO_LARGE = (
    "epsilon = {:g} is too large for this delta and number of values: the sampler's distance to "
    f"the exact law would take more than delta / {TAU_SHARE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisePlan:
    """The noise a party adds to its releases and what they cost, round by round.

    `mu2_cumulative[t]` and `tau_cumulative[t]` cover rounds 0..t, whichever of them happened. Both
    are empty if the cost is infinite. `sensitivity` is the sound Delta in every mode.
    """

    guarantee: Guarantee
    rounds: int
    noise_std: float
    exponent: int
    value_bound: float
    sensitivity: float
    mu2_cumulative: tuple[int, ...]
    tau_cumulative: tuple[int, ...]
    budget: Budget | None
    # The release is a symmetric matrix, diagonal first. Entries off the diagonal count twice in
    # its norm, so their noise is noise_std / sqrt(2).
    symmetric: bool = False
    # Agreed rows whose exact values leave, computed from private weights; free for all other rows.
    disclosed_rows: int = 0
    # The law of bounded noise, if the plan uses it; the plan then has no Gaussian noise.
    bounded: BoundedNoise | None = None

    @property
    def infinite(self) -> bool:
        """Whether the releases of this plan have infinite cost."""
        return not self.mu2_cumulative

    @property
    def mechanism(self) -> Literal["exact", "disclosed", "lattice_gaussian", BoundedKind]:
        """The name under which a release of this plan is booked."""
        if self.bounded is not None:
            return self.bounded.kind
        if self.disclosed_rows:
            return "disclosed"
        return "exact" if self.infinite else "lattice_gaussian"

    @property
    def ratio(self) -> float:
        """Noise in grid steps."""
        return self.noise_std / 2.0**self.exponent

    @property
    def off_diagonal_ratio(self) -> float:
        """Noise off the diagonal of a symmetric matrix, in grid steps, rounded up."""
        return round_ratio(self.ratio / math.sqrt(2.0))

    @property
    def spent(self) -> Spent:
        """The cost of the whole run: the amount to reserve."""
        if self.infinite:
            return Spent(exact=self.rounds)
        pure = () if self.bounded is None else (self.bounded.pure_units,)
        return Spent(self.mu2_cumulative[-1], self.tau_cumulative[-1], 0, pure)

    @property
    def mu(self) -> float:
        """mu of the whole run, rounded up."""
        if self.infinite:
            return math.inf
        return mu_of_units(self.mu2_cumulative[-1])

    def epsilon(self, delta: float) -> float:
        """Epsilon of the whole run at delta, rounded up; a paper run claims another epsilon."""
        return epsilon_shown(self.spent, delta)


def float_slack(rounding: float) -> float:
    """The charge per coordinate for the arithmetic between weights and quantiser.

    `rounding` bounds how far rounding can separate a value in two runs with equal exact values.
    """
    return max(FLOAT_SLACK, rounding)


def plan_none(rounds: int) -> NoisePlan:
    """Release values without noise; every release has infinite cost."""
    return NoisePlan(
        guarantee="none",
        rounds=rounds,
        noise_std=0.0,
        exponent=0,
        value_bound=math.inf,
        sensitivity=math.inf,
        mu2_cumulative=(),
        tau_cumulative=(),
        budget=None,
    )


def plan_silent() -> NoisePlan:
    """One round in which this party releases nothing and pays nothing."""
    return NoisePlan(
        guarantee="sound",
        rounds=1,
        noise_std=0.0,
        exponent=0,
        value_bound=0.0,
        sensitivity=0.0,
        mu2_cumulative=(0,),
        tau_cumulative=(0,),
        budget=None,
    )


def plan_disclosed(rows: int) -> NoisePlan:
    """One release of the exact values of `rows` agreed rows, which count as disclosed."""
    return replace(plan_silent(), value_bound=math.inf, disclosed_rows=rows)


def plan_bounded(noise: BoundedNoise, budget: Budget, *, mean_square: float) -> NoisePlan:
    """One release through a bounded mechanism; `noise_std` is that of typical numbers.

    `mean_square` says where typical numbers lie, as in `BoundedNoise.variance`.
    """
    return replace(
        plan_silent(),
        noise_std=math.sqrt(noise.variance(mean_square)),
        value_bound=max(abs(noise.low), abs(noise.high)),
        sensitivity=noise.high - noise.low,
        budget=budget,
        bounded=noise,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several releases of a run: its Delta^2 on its grid and its share of mu^2."""

    square: float
    values: int
    exponent: int
    value_bound: float
    share: float
    symmetric: bool = False


def fit_together(
    parts: Mapping[str, Part], budget: Budget, *, pure: PureUnits = ()
) -> dict[str, NoisePlan]:
    """The noise of each part, so that all parts and these pure epsilons fit the budget together."""
    epsilon = _epsilon_within_tau(budget, sum(part.values for part in parts.values()))
    mu = mu_beside(epsilon, budget.delta, pure)
    ratios = {
        name: max(
            math.sqrt(part.square / part.share) / mu / 2.0**part.exponent,
            NARROWEST_RATIO * math.sqrt(2.0),
        )
        for name, part in parts.items()
    }
    for _ in range(8):
        plans = {
            name: plan_at(
                "sound",
                np.array([part.square]),
                values=np.array([part.values], dtype=np.int64),
                exponent=part.exponent,
                ratio=round_ratio(ratios[name]),
                budget=budget,
                value_bound=part.value_bound,
                symmetric=part.symmetric,
            )
            for name, part in parts.items()
        }
        spent = total_spent(plans.values())
        if not spent.exact and affordable(budget, spent.mu2_units, spent.tau_units, pure):
            return plans
        ratios = {name: ratio * (1 + 2.0**-16) for name, ratio in ratios.items()}
    raise RefusedError(_TOO_LARGE.format(budget.epsilon))


def total_spent(plans: Iterable[NoisePlan]) -> Spent:
    """The total cost of several plans."""
    each = [plan.spent for plan in plans]
    return Spent(
        sum(one.mu2_units for one in each),
        sum(one.tau_units for one in each),
        sum(one.exact for one in each),
        tuple(sorted(units for one in each for units in one.pure)),
    )


def mu_of_units(mu2_units: int) -> float:
    """mu from the ledger's units, rounded up."""
    return math.sqrt(mu2_units * 2.0**-MU2_UNIT_BITS) * (1 + 2.0**-50)


def fit_noise(
    cumulative: FloatArray,
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
    exponent: int,
    budget: Budget,
    value_bound: float,
) -> NoisePlan:
    """Find the least noise, to the precision of a ratio, that the budget allows."""
    mu = mu_of(_epsilon_within_tau(budget, int(values.sum())), budget.delta)
    least = math.sqrt(cumulative[-1]) / mu / 2.0**exponent
    ratio = round_ratio(max(least, NARROWEST_RATIO))
    for _ in range(8):
        plan = plan_at(
            "sound",
            cumulative,
            values=values,
            exponent=exponent,
            ratio=ratio,
            budget=budget,
            value_bound=value_bound,
        )
        if affordable(budget, plan.spent.mu2_units, plan.spent.tau_units) and not plan.infinite:
            return plan
        ratio = round_ratio(ratio * (1 + 2.0**-17))
    raise RefusedError(_TOO_LARGE.format(budget.epsilon))


def _epsilon_within_tau(budget: Budget, values: int) -> float:
    """The largest epsilon, up to the budget's, at which the sampler's share of delta is small.

    A larger epsilon buys no accuracy: the run is then private at a smaller epsilon than requested.
    """
    tau = values * _TAU_UNITS_MAX * 2.0**-TAU_UNIT_BITS
    return min(budget.epsilon, math.log(budget.delta / (TAU_SHARE * 2.0 * tau)) - 1.0)


def plan_at(
    guarantee: Guarantee,
    cumulative: FloatArray,
    *,
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
    exponent: int,
    ratio: float,
    budget: Budget,
    value_bound: float,
    symmetric: bool = False,
) -> NoisePlan:
    """The plan with a noise of `ratio` grid steps, at any cost."""
    noise_std = ratio * 2.0**exponent
    widths = (ratio, round_ratio(ratio / math.sqrt(2.0))) if symmetric else (ratio,)
    units = cumulative / noise_std**2 * 2.0**MU2_UNIT_BITS * (1 + 2.0**-48)
    tau = np.cumsum(values).astype(object) * max(ladder(width).tau_units for width in widths)
    infinite = not (units < INT64_MAX / 2).all() or tau[-1] > INT64_MAX
    if value_bound + 16 * noise_std > _LARGEST_INTEGER * 2.0**exponent and not infinite:
        raise SettingsError("values would not fit 62-bit integers on this grid")
    return NoisePlan(
        guarantee=guarantee,
        rounds=len(cumulative),
        noise_std=noise_std,
        exponent=exponent,
        value_bound=value_bound,
        sensitivity=math.sqrt(cumulative[-1]) * (1 + 2.0**-52),
        mu2_cumulative=() if infinite else tuple(int(x) for x in np.ceil(units)),
        tau_cumulative=() if infinite else tuple(int(x) for x in tau),
        budget=budget,
        symmetric=symmetric,
    )
