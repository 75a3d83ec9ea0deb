"""What the rounds of every method have in common: how a release leaves, and how a round ends.

It owns the functions that all methods call and the shape of a method's moves; it knows no method.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.engine.port import Engine
from hdpvfl_mq.machine import ReadLedger, Send, Step
from parties.assets import Assets
from parties.echo import heard_residual, report
from parties.phases import ActiveRounds, PassiveRounds, Setup, Training, changed
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import ScoreShare
from schemas.privacy import Release


@dataclass(frozen=True)
class Rounds:
    """One method's moves, both sides; a table of these has one entry for each method."""

    active_start: Callable[[Assets, Setup], ActiveRounds]
    active_proceed: Callable[[Assets, Training], Step[Training]]
    passive_start: Callable[[Assets, Setup], PassiveRounds]
    passive_proceed: Callable[[Assets, Training], Step[Training]]
    passive_learn: Callable[[Assets, Training, FloatVector], Step[Training]]


def released(
    state: Training,
    values: Unreleased,
    kind: str,
    *,
    seal: bytes | None = None,
    scale: float = 1.0,
    allocate: Allocate = np.empty,
    engine: Engine | None = None,
) -> tuple[Release, Training]:
    """Pass values through the mechanism; the state records that they are released."""
    release = state.setup.mechanism.release(
        values,
        kind,
        state.round,
        state.transcript,
        last_round=state.last_released,
        seal=seal,
        scale=scale,
        allocate=allocate,
        engine=engine,
    )
    after = changed(
        state,
        last_released=state.round,
        transcript=next_transcript(state.transcript, release),
    )
    return release, heard_residual(after, release) if kind == "residual" else after


def share_message(state: Training, release: Release) -> ScoreShare:
    """A share of the current round, with the echo of the coordinator's orders."""
    return ScoreShare(
        round=state.round,
        orders=state.order_count,
        orders_digest=state.orders[-1],
        release=release,
    )


def booked(state: Training, values: Unreleased, kind: str) -> Release:
    """Release values that stay inside this party; the caller books the result."""
    return state.setup.mechanism.release(values, kind, state.round, state.transcript)


def next_transcript(transcript: bytes, release: Release) -> bytes:
    """Hash of everything released so far, in protocol order, not in order of arrival."""
    named = release.release_id.encode() + b"\x00" + release.tensor.digest
    return hashlib.sha256(transcript + named).digest()


def counted(state: Training, passive: PartyId) -> bool:
    """Whether a party's share enters the current round.

    A share of a party that the round leaves out does not count, even if it has arrived: arrival
    order is not information, and after a crash the share may arrive earlier or later.
    """
    return passive in _shares(state) and not state.is_away(passive)


def missing(state: Training) -> tuple[PartyId, ...]:
    """The parties whose share the current round still needs."""
    passives = state.manifest.passive_parties
    return tuple(p for p in passives if p not in _shares(state) and not state.is_away(p))


def is_complete(state: Training) -> bool:
    """Whether the current round needs no further share; quick while most have not come."""
    if not state.away_until and len(_shares(state)) < len(state.manifest.passive_parties):
        return False
    return not missing(state)


def finished_round(state: Training, *, is_over: bool) -> Step[Training]:
    """Count a round, and report to the coordinator when that is due."""
    state = changed(state, round=state.round + 1, is_done=is_over)
    if is_over:
        return state, (ReadLedger(),)  # the last report follows once peers have co-signed
    every = max(1, state.manifest.rounds_ahead // 4)
    if state.round % every:
        return state, ()
    return state, (Send((COORDINATOR,), report(state, last=False)),)


def _shares(state: Training) -> Mapping[PartyId, Any]:
    return state.rounds.shares if isinstance(state.rounds, ActiveRounds) else {}
