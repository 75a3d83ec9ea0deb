"""The phases of a run as the coordinator sees them, each a type with what it knows in it.

It owns the coordinator's memory; it makes no move. Every mapping is replaced, never changed.

gathering -> offered -> aligning -> training -> closed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from schemas.ids import PartyId
from schemas.messages import Aligned, RunAccept

_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What holds in every phase."""

    epochs: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)
    commitments: Mapping[PartyId, bytes] = field(default_factory=lambda: _NONE)
    heard: frozenset[PartyId] = frozenset()  # since the last time the watch fired
    told: frozenset[PartyId] = frozenset()  # whom the run waits for, as parties were last told

    @property
    def done(self) -> frozenset[PartyId]:
        """The parties whose next message the run does not wait for."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Gathering(Phase):
    """Waiting for every party's hello."""

    @property
    def done(self) -> frozenset[PartyId]:
        """Who has come."""
        return frozenset(self.epochs)


@dataclass(frozen=True, kw_only=True)
class Offered(Phase):
    """Waiting for every party's answer to the offer."""

    accepted: Mapping[PartyId, RunAccept] = field(default_factory=lambda: _NONE)

    @property
    def done(self) -> frozenset[PartyId]:
        """Who has accepted."""
        return frozenset(self.accepted)


@dataclass(frozen=True, kw_only=True)
class Aligning(Phase):
    """Waiting until every party knows the common rows."""

    aligned: Mapping[PartyId, Aligned] = field(default_factory=lambda: _NONE)

    @property
    def done(self) -> frozenset[PartyId]:
        """Who knows them."""
        return frozenset(self.aligned)


@dataclass(frozen=True, kw_only=True)
class Training(Phase):
    """Rounds run."""

    plan_digest: bytes
    rounds: int
    finished_rounds: Mapping[PartyId, int]
    finished: frozenset[PartyId] = frozenset()  # parties whose last round is over
    # How many residuals each party has sent or received, and their hash.
    residuals: Mapping[PartyId, tuple[int, bytes]] = field(default_factory=lambda: _NONE)
    planned: int = 0
    asked: bool = False  # a Pause is out, answers are awaited
    absent: frozenset[PartyId] = frozenset()

    @property
    def done(self) -> frozenset[PartyId]:
        """Who has finished, or is left out."""
        return self.finished | self.absent


@dataclass(frozen=True, kw_only=True)
class Closed(Phase):
    """The run is over."""

    outcome: str
    reason: str
    rounds: int = 0
    planned: int = 0

    @property
    def done(self) -> frozenset[PartyId]:
        """Nobody is waited for."""
        return frozenset()


PHASES: Mapping[str, type[Phase]] = {
    phase.__name__: phase for phase in (Gathering, Offered, Aligning, Training, Closed)
}
