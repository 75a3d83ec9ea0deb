"""The phases of a run as the coordinator sees them: one type each, holding what it then knows.

It owns the coordinator's state; it makes no move. Every mapping is replaced, never changed.

gathering -> offered -> aligning -> training -> closed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from schemas.ids import PartyId
from schemas.messages import Aligned, RunAccept, Waiting

_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Fields of every phase."""

    epochs: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)
    commitments: Mapping[PartyId, bytes] = field(default_factory=lambda: _NONE)
    heard: frozenset[PartyId] = frozenset()  # parties heard since the watch timer last fired
    # Whom the run waits for, as last sent to the parties.
    announced: frozenset[PartyId] = frozenset()

    @property
    def done(self) -> frozenset[PartyId]:
        """The parties whose next message the run does not wait for."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Gathering(Phase):
    """Waiting for every party's hello."""

    @property
    def done(self) -> frozenset[PartyId]:
        """Parties that have said hello."""
        return frozenset(self.epochs)


@dataclass(frozen=True, kw_only=True)
class Offered(Phase):
    """Waiting for every party's answer to the offer."""

    accepted: Mapping[PartyId, RunAccept] = field(default_factory=lambda: _NONE)

    @property
    def done(self) -> frozenset[PartyId]:
        """Parties that have accepted."""
        return frozenset(self.accepted)


@dataclass(frozen=True, kw_only=True)
class Asking(Phase):
    """Parties work with each other: only they know for whom the run waits."""

    # Whom each party says that it waits for, in answer to the last pause.
    waits: Mapping[PartyId, Waiting] = field(default_factory=lambda: _NONE)
    asked: bool = False  # a pause was sent and its answers are awaited

    @property
    def delaying(self) -> frozenset[PartyId]:
        """Parties that others wait for and that wait for nobody themselves.

        If each of them waits for another, all of them.
        """
        named = frozenset(p for said in self.waits.values() for p in said.waiting_for)
        idle = frozenset(p for p in named if p not in self.waits or not self.waits[p].waiting_for)
        return idle or named


@dataclass(frozen=True, kw_only=True)
class Aligning(Asking):
    """Waiting until every party knows the common rows."""

    aligned: Mapping[PartyId, Aligned] = field(default_factory=lambda: _NONE)

    @property
    def done(self) -> frozenset[PartyId]:
        """Parties that know the common rows."""
        return frozenset(self.aligned)


@dataclass(frozen=True, kw_only=True)
class Training(Asking):
    """Rounds are running."""

    plan_digest: bytes
    rounds: int
    finished_rounds: Mapping[PartyId, int]
    finished: frozenset[PartyId] = frozenset()  # parties whose last round is over
    # How many residuals each party has sent or received, and their hash.
    residuals: Mapping[PartyId, tuple[int, bytes]] = field(default_factory=lambda: _NONE)
    planned: int = 0
    absent: frozenset[PartyId] = frozenset()
    announced_at: int = 0  # `reached` when parties were told whom the run waits for

    @property
    def reached(self) -> int:
        """How far the parties are; it grows with every round that one of them reports."""
        return sum(self.finished_rounds.values()) + len(self.finished)

    @property
    def done(self) -> frozenset[PartyId]:
        """Parties that have finished or are left out."""
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
        """All parties: the run waits for nobody."""
        return frozenset()


PHASES: Mapping[str, type[Phase]] = {
    phase.__name__: phase for phase in (Gathering, Offered, Aligning, Training, Closed)
}
