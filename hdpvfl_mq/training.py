"""The public plan of a run: manifest + number of common rows -> everything both sides derive alone.

It owns how schedule, step sizes, losses, penalties and noise fit together; it knows no data, no
seed and no message. Every party computes the same plan, compares its digest with the others' and
refuses rounds that depart from it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import Family, family
from hdpvfl_mq.glm.penalties import Penalty, penalty
from hdpvfl_mq.glm.schedule import EarlyStop, Schedule, StepSize
from hdpvfl_mq.privacy.bounds import ActiveBounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.privacy.contraction import contraction
from hdpvfl_mq.privacy.plan import NoisePlan, plan_none, plan_paper, plan_sound
from hdpvfl_mq.privacy.published import (
    paper_active_bounds,
    paper_passive_bounds,
    published_active,
    published_passive,
)
from hdpvfl_mq.unreleased import FloatVector
from hdpvfl_mq.wire.codec import model_digest
from schemas.config import RunManifest

# What the paper puts into Lemma 3 for each loss: beta_y and k_y (PRIVACY notes in docs/privacy.md).
_PUBLISHED_LABEL_TERMS = {
    "logistic": (1.1, 1.0),
    "bernoulli": (1.1, 1.0),
    "least_squares": (2.0, 3.0),
    "normal": (1.0, 3.0),
    "squared_hinge": (2.0, 1.0),
}


# A plan takes a third of a millisecond a round; nobody's manifest may keep a party busy for hours.
ROUNDS_MAX = 200_000


@dataclass(frozen=True)
class TrainingPlan:
    """Schedule, losses and both sides' noise of one run over `rows` common rows."""

    manifest: RunManifest
    rows: int
    schedule: Schedule
    family: Family
    penalty: Penalty
    active_noise: NoisePlan
    passive_noise: NoisePlan
    received_clip: float  # C, infinite where nothing is clipped

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return self.schedule.rounds

    def noise_of(self, role: str) -> NoisePlan:
        """The noise of a side."""
        return self.active_noise if role == "active" else self.passive_noise

    @cached_property
    def first_averaged(self) -> int:
        """Iterates after this many rounds enter the final weights."""
        return min(self.rounds - 1, math.floor(self.manifest.average_from * self.rounds))

    def energies_after(
        self, round_: int, energies: tuple[float, ...], residual: FloatVector
    ) -> tuple[float, ...]:
        """Mean square of the released residuals of each epoch, the running one summed up."""
        if self.manifest.early_stop is None:
            return energies
        added = float(np.square(residual).sum()) / self.rows
        if round_ % self.schedule.batches == 0:
            return (*energies, added)
        return (*energies[:-1], energies[-1] + added)

    def is_over(self, done: int, energies: tuple[float, ...]) -> bool:
        """Whether `done` rounds are all: by the schedule, or by the stop rule after an epoch."""
        spec = self.manifest.early_stop
        if done >= self.rounds or spec is None or done % self.schedule.batches:
            return done >= self.rounds
        return EarlyStop(spec.patience, spec.tolerance).stops(energies)

    def active_eta(self, round_: int) -> float:
        """Step size of the active party in a round."""
        return _steps(self.manifest, self.manifest.active.step_size).at(self.schedule.epoch(round_))

    def passive_eta(self, round_: int) -> float:
        """Step size of every passive party in a round."""
        size = self.manifest.passive.step_size
        return _steps(self.manifest, size).at(self.schedule.epoch(round_))

    @cached_property
    def digest(self) -> bytes:
        """Equal at all parties exactly when they derived the same plan."""
        state = hashlib.sha256(b"hdpvfl-mq plan 1\x00" + model_digest(self.manifest))
        for side in (self.active_noise, self.passive_noise):
            state.update(repr((side.noise_std, side.exponent, side.rounds)).encode())
        state.update(repr((self.rows, self.received_clip)).encode())
        return state.digest()


def plan_training(manifest: RunManifest, rows: int) -> TrainingPlan:
    """Derive the plan; RefusedError where the privacy argument does not hold for these settings."""
    schedule = Schedule(rows, manifest.batch_rows, manifest.epochs)
    if schedule.rounds > ROUNDS_MAX:
        raise SettingsError(
            f"epochs, batch_rows: {schedule.rounds:,} rounds are more than the limit of "
            f"{ROUNDS_MAX:,}; take fewer epochs or larger batches"
        )
    loss, pen = family(manifest.loss), penalty(manifest.penalty)
    if manifest.guarantee == "none":
        noise = plan_none(schedule.rounds)
        return TrainingPlan(manifest, rows, schedule, loss, pen, noise, noise, math.inf)
    make = _sound_sides if manifest.guarantee == "sound" else _paper_sides
    active, passive, clip = make(manifest, schedule, loss)
    return TrainingPlan(manifest, rows, schedule, loss, pen, active, passive, clip)


def _steps(manifest: RunManifest, eta: float) -> StepSize:
    return StepSize(eta, manifest.step_decay)


def _public(manifest: RunManifest, schedule: Schedule, eta: float) -> PublicSchedule:
    etas = tuple(_steps(manifest, eta).at(schedule.epoch(t)) for t in range(schedule.rounds))
    return PublicSchedule(schedule.batch_sizes, manifest.epochs, etas)


def _rho(
    manifest: RunManifest, etas: float | tuple[float, ...], beta: float | None, *, free: bool
) -> float:
    """The largest contraction factor of any round."""
    spec = manifest.penalty
    distinct = set(etas) if isinstance(etas, tuple) else {etas}
    return max(
        contraction(
            spec.name, eta, lam=spec.strength, alpha=spec.mixing, beta=beta, has_unpenalised=free
        )
        for eta in distinct
    )


def _sound_sides(
    manifest: RunManifest, schedule: Schedule, loss: Family
) -> tuple[NoisePlan, NoisePlan, float]:
    assert manifest.budget is not None
    assert manifest.passive.received_clip is not None
    may_skip = manifest.absence != "wait"
    side = manifest.active
    public = _public(manifest, schedule, side.step_size)
    active_bounds = ActiveBounds(
        radius=side.weight_norm,
        residual_bound=loss.residual_bound,
        smoothness=loss.smoothness,
        rho=_rho(manifest, public.eta, loss.smoothness, free=side.intercept),
        local_steps=side.local_steps,
        own_release=loss.release_bound(side.weight_norm),
    )
    active = plan_sound(active_bounds, public, manifest.budget, value_bound=loss.residual_bound)
    clip = manifest.passive.received_clip * active.noise_std
    public = _public(manifest, schedule, manifest.passive.step_size)
    passive_bounds = PassiveBounds(
        radius=manifest.passive.weight_norm,
        clip_received=clip,
        rho=_rho(manifest, public.eta, None, free=False),
        may_skip=may_skip,
    )
    passive = plan_sound(
        passive_bounds, public, manifest.budget, value_bound=manifest.passive.weight_norm
    )
    return active, passive, clip


def _paper_sides(
    manifest: RunManifest, schedule: Schedule, loss: Family
) -> tuple[NoisePlan, NoisePlan, float]:
    """The published noise, as published; what it really costs is booked under sound bounds."""
    assert manifest.budget is not None
    side, spec = manifest.active, manifest.penalty
    beta_y, label_bound = _PUBLISHED_LABEL_TERMS.get(
        loss.name, (1.0, max(abs(loss.label_low), abs(loss.label_high)))
    )
    public = _public(manifest, schedule, side.step_size)
    active = plan_paper(
        paper_active_bounds(
            spec.name,
            side.step_size,
            lam=spec.strength,
            alpha=spec.mixing,
            beta=loss.smoothness,
            radius=side.weight_norm,
            residual_bound=loss.residual_bound,
            has_unpenalised=side.intercept,
        ),
        public,
        manifest.budget,
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
    public = _public(manifest, schedule, manifest.passive.step_size)
    radius = manifest.passive.weight_norm
    passive = plan_paper(
        paper_passive_bounds(radius),
        public,
        manifest.budget,
        value_bound=radius,
        published=published_passive(public, radius=radius, residual_bound=loss.residual_bound),
    )
    return active, passive, math.inf
