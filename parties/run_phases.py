"""The phases of a run as one member of a federation knows them: one type each, with its own fields.

It owns these values; proposals.py owns the moves.

asked -> proposed -> open -> over; a run that never comes about is refused
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from schemas.config import RunManifest
from schemas.ids import PartyId


@dataclass(frozen=True)
class KnownRun:
    """Fields of every phase."""

    # Its name for people.
    phase: ClassVar[Literal["asked", "proposed", "open", "refused", "over"]]
    manifest: RunManifest


@dataclass(frozen=True)
class Asked(KnownRun):
    """This party's operator or policy must answer."""

    phase = "asked"


@dataclass(frozen=True, kw_only=True)
class Willing(KnownRun):
    """This party has proposed or accepted it."""

    rows: str | None = None  # this party's file of rows to score
    out: str | None = None  # where their scores go
    is_session: bool = False  # it stays open for queries about single people
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Proposed(Willing):
    """Other parties must answer."""

    phase = "proposed"
    waiting_for: tuple[PartyId, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Open(Willing):
    """All parties have accepted it."""

    phase = "open"


@dataclass(frozen=True)
class Refused(KnownRun):
    """It never opens, or the broker could not open it."""

    phase = "refused"
    reason: str


@dataclass(frozen=True)
class Over(KnownRun):
    """It has ended in this process."""

    phase = "over"
    outcome: str
    reason: str
