"""The plan of descent: schedule, step sizes and both sides' noise, for every guarantee.

It owns how constants of losses, penalties and step sizes enter the bounds; it knows no data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.glm.families import Family, family
from hdpvfl_mq.glm.penalties import Penalty, penalty
from hdpvfl_mq.glm.schedule import Schedule, StepSize, stops
from hdpvfl_mq.methods.descent.bound import ActiveBounds, Bounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.methods.descent.published import (
    paper_active_bounds,
    paper_passive_bounds,
    published_active,
    published_passive,
)
from hdpvfl_mq.methods.descent.sensitivity import coarsest_grid, profile
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.calibration import noise_std_classical
from hdpvfl_mq.privacy.noise import NARROWEST_RATIO, round_ratio
from hdpvfl_mq.privacy.plan import NoisePlan, fit_noise, plan_at, plan_none
from schemas.config import RunManifest
from schemas.ids import PartyRole
from schemas.methods import Descent, Prediction
from schemas.privacy import Budget

# A plan takes a third of a millisecond per round; no manifest may keep a party busy for hours.
ROUNDS_MAX = 200_000
# A run whose real epsilon is above this is booked with infinite cost.
_EPSILON_BOOKABLE = 900.0


@dataclass(frozen=True, kw_only=True)
class DescentPlan(RunPlan):
    """Adds penalty, step sizes, the clip, averaging and the stop rule to the plan."""

    method: Descent
    penalty: Penalty
    clip: float  # C, infinite if nothing is clipped

    @property
    def is_sealed(self) -> bool:
        """False: all parties may see the shares."""
        return False

    @property
    def received_clip(self) -> float:
        """C: a passive party clips received values to +- C."""
        return self.clip

    def settings_of(self, role: PartyRole) -> Mapping[str, float]:
        """Weight norm and step size; the clip belongs to a passive party."""
        side = self.method.active if role == "active" else self.method.passive
        settings = {"weight_norm": side.weight_norm, "step_size": side.step_size}
        return settings if role == "active" else {**settings, "received_clip": self.clip}

    @cached_property
    def first_averaged(self) -> int:
        """The final weights average the iterates after this many rounds."""
        return min(self.rounds - 1, math.floor(self.method.average_from * self.rounds))

    def energies_after(
        self, round_: int, energies: tuple[float, ...], residual: FloatVector
    ) -> tuple[float, ...]:
        """Mean square of the released residuals per epoch; for the current epoch, so far."""
        if self.method.early_stop is None:
            return energies
        added = float(np.square(residual).sum()) / self.rows
        if round_ % self.schedule.batches == 0:
            return (*energies, added)
        return (*energies[:-1], energies[-1] + added)

    def is_over(self, done: int, energies: tuple[float, ...]) -> bool:
        """Whether the run ends after `done` rounds, by the schedule or by the stop rule."""
        rule = self.method.early_stop
        if done >= self.rounds or rule is None or done % self.schedule.batches:
            return done >= self.rounds
        return stops(energies, patience=rule.patience, tolerance=rule.tolerance)

    def eta(self, role: PartyRole, round_: int) -> float:
        """Step size of a role in a round."""
        return step_size(self.method, role).at(self.schedule.epoch(round_))


def plan_descent(manifest: RunManifest, method: Descent, rows: int) -> DescentPlan:
    """Derive the plan; RefusedError if the privacy argument does not hold."""
    schedule = Schedule(rows, method.batch_rows, method.epochs)
    if schedule.rounds > ROUNDS_MAX:
        raise SettingsError(
            f"method.epochs, method.batch_rows: {schedule.rounds:,} rounds are more than the limit "
            f"of {ROUNDS_MAX:,}; take fewer epochs or larger batches"
        )
    loss = family(manifest.loss)
    active, passive, clip = _noise(manifest, method, schedule, loss)
    return DescentPlan(
        manifest=manifest,
        rows=rows,
        schedule=schedule,
        family=loss,
        active_noise=active,
        passive_noise=passive,
        method=method,
        penalty=penalty(manifest.penalty),
        clip=clip,
    )


def prediction_after_descent(manifest: RunManifest, method: Descent) -> Prediction:
    """Scores with the weights of a run of descent.

    *Bound*: the weights stay in a ball, so one row moves them by at most its diameter.
    """
    norm = method.passive.weight_norm
    return Prediction(model_run=manifest.run, weight_norm=norm, distance=2.0 * norm)


def _noise(
    manifest: RunManifest, method: Descent, schedule: Schedule, loss: Family
) -> tuple[NoisePlan, NoisePlan, float]:
    """Noise of the active and of every passive party, and C."""
    budget = manifest.budget
    if budget is None:
        noise = plan_none(schedule.rounds)
        return noise, noise, math.inf
    if manifest.guarantee == "paper":
        return *_paper(manifest, method, schedule, loss, budget), math.inf
    return _sound(manifest, method, schedule, loss, budget)


def step_size(method: Descent, role: PartyRole) -> StepSize:
    """The step sizes of a role under the method's decay."""
    part = method.active if role == "active" else method.passive
    return StepSize(part.step_size, method.step_decay)


def _public(method: Descent, schedule: Schedule, role: PartyRole) -> PublicSchedule:
    size = step_size(method, role)
    etas = tuple(size.at(schedule.epoch(t)) for t in range(schedule.rounds))
    return PublicSchedule(schedule.batch_sizes, method.epochs, etas)


def _rho(
    manifest: RunManifest, etas: float | tuple[float, ...], beta: float | None, *, free: bool
) -> float:
    """The largest contraction factor of any round."""
    distinct = etas if isinstance(etas, tuple) else (etas,)
    return penalty(manifest.penalty).contraction(distinct, beta=beta, has_free=free)


def _sound(
    manifest: RunManifest, method: Descent, schedule: Schedule, loss: Family, budget: Budget
) -> tuple[NoisePlan, NoisePlan, float]:
    """Descent with the sound recursion."""
    side, other = method.active, method.passive
    assert other.received_clip is not None  # the schema demands it with guarantee sound
    public = _public(method, schedule, "active")
    active_bounds = ActiveBounds(
        radius=side.weight_norm,
        residual_bound=loss.residual_bound,
        smoothness=loss.smoothness,
        rho=_rho(manifest, public.eta, loss.smoothness, free=manifest.intercept),
        rounding=loss.rounding(side.weight_norm),
        local_steps=side.local_steps,
        own_release=loss.release_bound(side.weight_norm),
    )
    active = plan_sound(active_bounds, public, budget, value_bound=loss.residual_bound)
    clip = other.received_clip * active.noise_std
    public = _public(method, schedule, "passive")
    passive_bounds = PassiveBounds(
        radius=other.weight_norm,
        clip_received=clip,
        rho=_rho(manifest, public.eta, None, free=False),
        may_skip=manifest.absence != "wait",
    )
    passive = plan_sound(passive_bounds, public, budget, value_bound=other.weight_norm)
    return active, passive, clip


def _paper(
    manifest: RunManifest, method: Descent, schedule: Schedule, loss: Family, budget: Budget
) -> tuple[NoisePlan, NoisePlan]:
    """The noise as published; the ledger books its real cost under sound bounds."""
    active = _paper_active(manifest, method, schedule, loss, budget)
    public = _public(method, schedule, "passive")
    radius = method.passive.weight_norm
    passive = plan_paper(
        paper_passive_bounds(radius),
        public,
        budget,
        value_bound=radius,
        published=published_passive(public, radius=radius, residual_bound=loss.residual_bound),
    )
    return _bookable(active), _bookable(passive)


def _paper_active(
    manifest: RunManifest, method: Descent, schedule: Schedule, loss: Family, budget: Budget
) -> NoisePlan:
    side = method.active
    beta_y, label_bound = loss.published_terms()
    public = _public(method, schedule, "active")
    try:
        rho = _rho(manifest, public.eta, loss.smoothness, free=manifest.intercept)
    except RefusedError:
        rho = None
    return plan_paper(
        paper_active_bounds(
            rho,
            smoothness=loss.smoothness,
            radius=side.weight_norm,
            residual_bound=loss.residual_bound,
            rounding=loss.rounding(side.weight_norm),
            local_steps=side.local_steps,
        ),
        public,
        budget,
        value_bound=loss.residual_bound,
        published=published_active(
            public,
            radius=side.weight_norm,
            residual_bound=loss.residual_bound,
            beta_theta=loss.smoothness,
            beta_y=beta_y,
            label_bound=label_bound,
        ),
    )


def _bookable(plan: NoisePlan) -> NoisePlan:
    """The plan of a paper-mode run, with infinite cost if its real epsilon is not bookable."""
    if plan.budget is None or plan.epsilon(plan.budget.delta) <= _EPSILON_BOOKABLE:
        return plan
    return replace(plan, mu2_cumulative=(), tau_cumulative=())


@lru_cache(maxsize=16)  # a process derives the same plan several times, all from public values
def plan_sound(
    bounds: Bounds, schedule: PublicSchedule, budget: Budget, *, value_bound: float
) -> NoisePlan:
    """Choose grid and noise so that the whole run is within the budget.

    *Guarantee.* Every epsilon of this plan is a theorem about what the mechanism releases, for
    every row, all data of the other parties and every message they may send.
    """
    if math.isinf(bounds.recursion(schedule).pull):
        raise RefusedError("the sound guarantee needs a finite clip and a finite residual bound")
    exponent = coarsest_grid(bounds, schedule)
    result = profile(bounds, schedule, grid=2.0**exponent)
    rows = np.array([schedule.rows_in(t) for t in range(schedule.rounds)])
    return fit_noise(result.cumulative, rows, exponent, budget, value_bound)


def plan_paper(
    bounds: Bounds,
    schedule: PublicSchedule,
    budget: Budget,
    *,
    value_bound: float,
    published: float,
) -> NoisePlan:
    """Use the paper's noise for the paper's Delta, and book its real cost under `bounds`."""
    noise_std = noise_std_classical(published, budget.epsilon, budget.delta)
    if math.isfinite(bounds.recursion(schedule).own_move[-1]):
        exponent = coarsest_grid(bounds, schedule)
    else:
        exponent = math.floor(math.log2(noise_std)) - 12
    ratio = round_ratio(max(noise_std / 2.0**exponent, NARROWEST_RATIO))
    result = profile(bounds, schedule, grid=2.0**exponent)
    rows = np.array([schedule.rows_in(t) for t in range(schedule.rounds)])
    return plan_at(
        "paper",
        result.cumulative,
        values=rows,
        exponent=exponent,
        ratio=ratio,
        budget=budget,
        value_bound=value_bound,
    )
