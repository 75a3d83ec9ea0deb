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

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import Family, family
from hdpvfl_mq.glm.minimiser import MinimiserTerms
from hdpvfl_mq.glm.penalties import Penalty, penalty
from hdpvfl_mq.glm.schedule import EarlyStop, Schedule
from hdpvfl_mq.plan.noise_plans import sides, step_size
from hdpvfl_mq.privacy.plan import NoisePlan
from hdpvfl_mq.wire.codec import model_digest
from schemas.config import RunManifest

# A plan takes a third of a millisecond a round; nobody's manifest may keep a party busy for hours.
ROUNDS_MAX = 200_000


@dataclass(frozen=True)
class RunPlan:
    """Schedule, losses and both sides' noise of one run over `rows` common rows."""

    manifest: RunManifest
    rows: int
    schedule: Schedule
    family: Family
    penalty: Penalty
    active_noise: NoisePlan
    passive_noise: NoisePlan
    received_clip: float  # C, infinite where nothing is clipped
    terms: MinimiserTerms | None = None  # of the one-round method

    @property
    def is_sealed(self) -> bool:
        """Whether shares are for the active party's eyes alone: exact scores of a prediction."""
        return self.manifest.method == "prediction" and self.passive_noise.guarantee == "none"

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
        self, round_: int, energies: tuple[float, ...], residual: FloatVector | None
    ) -> tuple[float, ...]:
        """Mean square of the released residuals of each epoch, the running one summed up."""
        if self.manifest.early_stop is None or residual is None:
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
        return step_size(self.manifest, self.manifest.active.step_size).at(
            self.schedule.epoch(round_)
        )

    def passive_eta(self, round_: int) -> float:
        """Step size of every passive party in a round."""
        size = self.manifest.passive.step_size
        return step_size(self.manifest, size).at(self.schedule.epoch(round_))

    @cached_property
    def digest(self) -> bytes:
        """Equal at all parties exactly when they derived the same plan."""
        state = hashlib.sha256(b"hdpvfl-mq plan 1\x00" + model_digest(self.manifest))
        for side in (self.active_noise, self.passive_noise):
            state.update(repr((side.noise_std, side.exponent, side.rounds)).encode())
        state.update(repr((self.rows, self.received_clip)).encode())
        return state.digest()


def plan_run(manifest: RunManifest, rows: int) -> RunPlan:
    """Derive the plan; RefusedError where the privacy argument does not hold for these settings."""
    batch_rows = manifest.batch_rows if manifest.method == "descent" else rows
    schedule = Schedule(rows, batch_rows, manifest.epochs)
    if schedule.rounds > ROUNDS_MAX:
        raise SettingsError(
            f"epochs, batch_rows: {schedule.rounds:,} rounds are more than the limit of "
            f"{ROUNDS_MAX:,}; take fewer epochs or larger batches"
        )
    loss = family(manifest.loss)
    both = sides(manifest, schedule, loss)
    return RunPlan(
        manifest=manifest,
        rows=rows,
        schedule=schedule,
        family=loss,
        penalty=penalty(manifest.penalty),
        active_noise=both.active,
        passive_noise=both.passive,
        received_clip=both.received_clip,
        terms=both.terms,
    )
