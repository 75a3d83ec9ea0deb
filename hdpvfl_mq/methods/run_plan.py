"""The public plan of a run: every party derives it alone from the manifest and the row count.

It owns what the plans of all methods have in common; it knows no data, no secret and no message.
Every party computes the same plan, compares its digest with the others' and refuses rounds that
deviate from it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.plan import NoisePlan, total_spent
from schemas.config import RunManifest
from schemas.ids import PartyRole


@dataclass(frozen=True, kw_only=True)
class RunPlan(ABC):
    """Schedule, loss and both sides' noise of one run over `rows` common rows.

    Each method has its own subclass; these fields are common to all. `inner_noise` is the noise of
    releases that a passive party makes for itself, such as the statistics behind its weights.
    """

    manifest: RunManifest
    rows: int
    schedule: Schedule
    family: Family
    active_noise: NoisePlan
    passive_noise: NoisePlan
    inner_noise: Mapping[str, NoisePlan] = field(default_factory=lambda: MappingProxyType({}))

    @property
    @abstractmethod
    def is_sealed(self) -> bool:
        """Whether shares are encrypted for the active party alone, because they have no noise."""

    @property
    @abstractmethod
    def received_clip(self) -> float:
        """C: a passive party clips received values to +- C."""

    @abstractmethod
    def settings_of(self, role: PartyRole) -> Mapping[str, float]:
        """What a side's optimiser works with, such as weight norm and step size, to be shown."""

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return self.schedule.rounds

    def noise_of(self, role: PartyRole) -> NoisePlan:
        """The noise of the per-row values that a party with this role sends."""
        return self.active_noise if role == "active" else self.passive_noise

    def releases_of(self, role: PartyRole) -> Mapping[str, NoisePlan]:
        """The noise of every kind of release of a party with this role."""
        if role == "active":
            return {"residual": self.active_noise}
        return {**self.inner_noise, "share": self.passive_noise}

    def spent_by(self, role: PartyRole) -> Spent:
        """The total cost of all releases of a party with this role: the amount to reserve."""
        return total_spent(self.releases_of(role).values())

    def residual_count(self, round_: int) -> int:
        """Numbers in the residual of a round."""
        return self.schedule.batch_sizes[round_ % self.schedule.batches]

    def share_count(self, round_: int) -> int:
        """Numbers in a share of a round."""
        return self.schedule.batch_sizes[round_ % self.schedule.batches]

    @cached_property
    def digest(self) -> bytes:
        """A digest that is equal at all parties exactly when they derived the same plan."""
        from hdpvfl_mq.wire.codec import model_digest  # noqa: PLC0415 - who only plans needs no messages

        state = hashlib.sha256(b"hdpvfl-mq plan 2\x00" + model_digest(self.manifest))
        for side in (self.active_noise, self.passive_noise, *self.inner_noise.values()):
            state.update(repr((side.noise_std, side.exponent, side.rounds)).encode())
            if side.bounded is not None:
                state.update(repr(side.bounded).encode())
        state.update(repr((self.rows, self.received_clip)).encode())
        return state.digest()
