"""The phases of a run as its federation's registrar sees them: one type each, with its own fields.

It owns these values; agreed_runs.py owns the moves.

proposed -> open -> stopping -> closed -> over; a run that never comes about is refused
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from schemas.config import RunManifest
from schemas.federation import RunPhase
from schemas.ids import PartyId


@dataclass(frozen=True)
class AgreedRun:
    """Fields of every phase."""

    phase: ClassVar[RunPhase]  # its name in messages and for people
    manifest: RunManifest


@dataclass(frozen=True)
class Proposed(AgreedRun):
    """Waiting for the passive parties' answers."""

    phase = "proposed"
    accepted: frozenset[PartyId] = frozenset()

    @property
    def waiting_for(self) -> tuple[PartyId, ...]:
        """Parties that have not answered."""
        return tuple(p for p in self.manifest.passive_parties if p not in self.accepted)


@dataclass(frozen=True)
class Opened(AgreedRun):
    """All parties have accepted it, and its node has not ended."""


@dataclass(frozen=True)
class Open(Opened):
    """The run's coordinator decides when it ends."""

    phase = "open"


@dataclass(frozen=True)
class Stopping(Opened):
    """A party or the broker's operator has asked the coordinator to close it."""

    phase = "open"
    reason: str


@dataclass(frozen=True)
class Closed(Opened):
    """Its coordinator has closed it; some parties have not acknowledged that."""

    phase = "over"
    outcome: str
    reason: str
    is_stopped: bool = False  # somebody has asked to stop it, before or after


@dataclass(frozen=True)
class Refused(AgreedRun):
    """It never opens, or the broker could not open it."""

    phase = "refused"
    reason: str


@dataclass(frozen=True)
class Over(AgreedRun):
    """Its node has ended."""

    phase = "over"
    outcome: str
    reason: str


def is_busy(run: AgreedRun) -> bool:
    """Whether it is proposed or open; a run that is closed but not acknowledged is neither."""
    return isinstance(run, Proposed | Open | Stopping)


def is_stopped(run: AgreedRun) -> bool:
    """Whether somebody has asked to stop it while its node has not ended."""
    return isinstance(run, Stopping) or (isinstance(run, Closed) and run.is_stopped)
