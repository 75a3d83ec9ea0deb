"""The public schedule and the public constants that bound one party's run.

It owns how far one row can move the weights and one release, per side, in one common form; it knows
no data and computes no sums. Factors and bounds come in as numbers, so it knows no penalty either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.block import SCORE_ROUNDING
from hdpvfl_mq.privacy.plan import float_slack

FloatArray = NDArray[np.float64]
MAX_ROUNDS = 1_000_000


def per_round(value: float | tuple[float, ...], rounds: int) -> FloatArray:
    """Spread a constant over the rounds, or check that there is one number per round."""
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.ndim == 0:
        return np.full(rounds, float(numbers))
    if numbers.shape != (rounds,):
        raise SettingsError(f"{rounds} rounds need {rounds} numbers, not {numbers.size}")
    return numbers


def _factors(
    rho: float | tuple[float, ...], schedule: PublicSchedule, *, may_skip: bool
) -> FloatArray:
    factors = per_round(rho, schedule.rounds)
    if not ((factors >= 0.0) & (factors <= 1.0)).all():
        raise SettingsError("rho must be between 0 and 1")
    # A round that may be skipped does not contract distances.
    return np.ones(schedule.rounds) if may_skip else factors


@dataclass(frozen=True, slots=True)
class PublicSchedule:
    """Batch sizes of one epoch, number of epochs, and the step size (one, or one per round)."""

    batch_rows: tuple[int, ...]
    epochs: int
    eta: float | tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.batch_rows or min(self.batch_rows) < 1 or self.epochs < 1:
            raise SettingsError("a schedule needs at least one epoch of non-empty batches")
        if self.rounds > MAX_ROUNDS:
            raise SettingsError(f"a schedule may have at most {MAX_ROUNDS} rounds")
        if not all(0.0 < step < math.inf for step in per_round(self.eta, self.rounds)):
            raise SettingsError("every step size must be positive and finite")

    @property
    def rounds(self) -> int:
        return self.epochs * len(self.batch_rows)

    def rows_in(self, round: int) -> int:
        return self.batch_rows[round % len(self.batch_rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveBounds:
    """Public constants of a passive party: k, C, rho, and where the weights start."""

    radius: float
    clip_received: float
    rho: float | tuple[float, ...]
    may_skip: bool = False
    start_distance: float = 0.0
    start_radius: float = 0.0

    def recursion(self, schedule: PublicSchedule) -> Recursion:
        """*Bound.* Own row: 2 R_t, with R_{t+1} = min(k, rho R_t + eta C); zero weights cost 0."""
        if self.start_distance > 2.0 * self.start_radius:
            raise SettingsError("a start distance needs a start radius of at least half of it")
        rho = _factors(self.rho, schedule, may_skip=self.may_skip)
        reach, norm = np.empty(schedule.rounds), min(self.start_radius, self.radius)
        for t, step in enumerate(per_round(schedule.eta, schedule.rounds)):
            reach[t] = norm
            norm = min(self.radius, (rho[t] * norm + step * self.clip_received) * (1 + 2.0**-50))
        return Recursion(
            gain=1.0,
            pull=self.clip_received,
            local_steps=1,
            rho=rho,
            radius=self.radius,
            own_move=2.0 * reach,
            release_rounding=SCORE_ROUNDING * self.radius,
            step_rounding=0.0,  # a step depends on received values, which are the same in both runs
            start_distance=self.start_distance,
            may_skip=self.may_skip,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveBounds:
    """Public constants of the active party: k, L, beta, rho, local steps, where weights start.

    `rounding` is how far rounding can separate the residuals of one row in two runs.
    """

    radius: float
    residual_bound: float
    smoothness: float
    rho: float | tuple[float, ...]
    rounding: float
    local_steps: int = 1
    own_release: float | None = None
    may_skip: bool = False
    start_distance: float = 0.0

    def recursion(self, schedule: PublicSchedule) -> Recursion:
        """*Bound.* Own row: 2 L, or `own_release` where the loss has a smaller proved bound."""
        own = 2.0 * self.residual_bound if self.own_release is None else self.own_release
        return Recursion(
            gain=self.smoothness,
            pull=self.residual_bound,
            local_steps=self.local_steps,
            rho=_factors(self.rho, schedule, may_skip=self.may_skip),
            radius=self.radius,
            own_move=np.full(schedule.rounds, min(own, 2.0 * self.residual_bound)),
            release_rounding=self.rounding,
            step_rounding=self.rounding,
            start_distance=self.start_distance,
            may_skip=self.may_skip,
        )


Bounds = PassiveBounds | ActiveBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Recursion:
    """Both sides in one form: distances grow by `pull`, releases move by `gain` times them."""

    gain: float
    pull: float
    local_steps: int
    rho: FloatArray
    radius: float
    own_move: FloatArray
    release_rounding: float
    step_rounding: float
    start_distance: float
    may_skip: bool

    def __post_init__(self) -> None:
        if not 0.0 < self.radius < math.inf or not self.gain > 0.0 or not self.pull > 0.0:
            raise SettingsError("radius, clip and smoothness must be positive, the radius finite")
        if self.local_steps < 1 or not 0.0 <= self.start_distance <= 2.0 * self.radius:
            raise SettingsError("at least one local step, and a start distance within 2k")

    def drift(self, schedule: PublicSchedule) -> float:
        """Bound how much rounding of residuals adds to the distance of two runs' weights.

        *Bound.* A step moves by eta times a mean of rows times residuals, and contracts.
        """
        steps = self.local_steps * math.fsum(per_round(schedule.eta, schedule.rounds))
        return min(steps * self.step_rounding, 2.0 * self.radius)

    def slack(self, schedule: PublicSchedule) -> float:
        """The cost of floating-point arithmetic per coordinate of a release, besides the grid."""
        return float_slack(self.release_rounding + self.gain * self.drift(schedule))
