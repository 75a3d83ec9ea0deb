"""The public plan of a run: what every party derives alone from the manifest and the row count.

It owns what the plans of all methods have in common; it knows no data, no secret and no message.
Every party computes the same plan, compares its digest with the others' and refuses rounds that
depart from it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.privacy.plan import NoisePlan
from hdpvfl_mq.wire.codec import model_digest
from schemas.config import RunManifest
from schemas.ids import PartyRole


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Schedule, loss and both sides' noise of one run over `rows` common rows.

    Each method has a plan of its own; what is here holds for all of them.
    """

    manifest: RunManifest
    rows: int
    schedule: Schedule
    family: Family
    active_noise: NoisePlan
    passive_noise: NoisePlan

    @property
    def is_sealed(self) -> bool:
        """Whether shares are encrypted for the active party alone, because they have no noise."""
        return False

    @property
    def received_clip(self) -> float:
        """C, at which a passive party clips what it receives."""
        raise NotImplementedError

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return self.schedule.rounds

    def noise_of(self, role: PartyRole) -> NoisePlan:
        """The noise of a party with this role."""
        return self.active_noise if role == "active" else self.passive_noise

    @cached_property
    def digest(self) -> bytes:
        """Equal at all parties exactly when they derived the same plan."""
        state = hashlib.sha256(b"hdpvfl-mq plan 2\x00" + model_digest(self.manifest))
        for side in (self.active_noise, self.passive_noise):
            state.update(repr((side.noise_std, side.exponent, side.rounds)).encode())
        state.update(repr((self.rows, self.received_clip)).encode())
        return state.digest()
