"""Leaving a run: this party does, or a peer has.

It owns how everybody hears of it; which end of the coordinator's a party believes is in closing.py.
A party that leaves tells all, not the coordinator alone, and waits for its word a few seconds only.
"""

from __future__ import annotations

from typing import Any

from hdpvfl_mq.endings import outcome_of, said_by, why
from hdpvfl_mq.machine import (
    Effect,
    Finish,
    OperatorRequest,
    Received,
    Send,
    Step,
    TimerFired,
    arm,
)
from parties.assets import Assets
from parties.phases import Closed, Joining, Leaving, Over, Running, Training
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Withdraw, WithdrawReason

CLOSING_S = 5.0  # how long the coordinator's word is waited for


def leave(
    own: Assets,
    state: Running,
    reason: WithdrawReason,
    *,
    about: PartyId | None = None,
    detail: str = "",
) -> Step[Leaving]:
    """Leave the run and tell everybody; `detail` is for this party's own console."""
    word = Withdraw(reason=reason, about=about)
    after = _leaving(state, outcome_of(reason), detail or f"this party withdrew: {why(word)}")
    return after, (Send(everybody(own, state), word), arm("closing", CLOSING_S))


def everybody(own: Assets, state: Running) -> tuple[PartyId, ...]:
    manifest = _manifest(state)
    known = manifest.parties if manifest else sorted(set(own.verify_keys) - {COORDINATOR})
    return (COORDINATOR, *(party for party in known if party != own.party))


def _leaving(state: Running, outcome: str, reason: str) -> Leaving:
    return Leaving(**kept(state), outcome=outcome, reason=reason)


def kept(state: Running) -> dict[str, Any]:
    if isinstance(state, Over):
        return {"standing": state.standing, "manifest": state.manifest, "trained": state.trained}
    trained = state if isinstance(state, Training) else None
    return {"standing": state.standing, "manifest": _manifest(state), "trained": trained}


def _manifest(state: Running) -> RunManifest | None:
    found: RunManifest | None = getattr(state, "manifest", None)  # joining has none
    return found


def refused(state: Joining, reason: str) -> Leaving:
    """This party has refused the offer; the coordinator ends the run."""
    return _leaving(state, "refused", reason)


def asked_to(own: Assets, state: Running, given: OperatorRequest) -> Step[Leaving]:
    """The operator wants to leave; what is spent stays spent."""
    return leave(own, state, "operator")


def peer_left(own: Assets, state: Running, given: Received[Withdraw]) -> Step[Leaving]:
    """A peer has left: the run cannot go on, whatever the coordinator says."""
    reason = said_by(given.sender, given.message)
    after = _leaving(state, outcome_of(given.message.reason), state.reason or reason)
    return after, (arm("closing", CLOSING_S),)


def too_late(own: Assets, state: Leaving, given: TimerFired) -> Step[Closed]:
    """The coordinator says nothing: end without its word."""
    return close(state, state.outcome, state.reason)


def close(state: Running, outcome: str, reason: str) -> Step[Closed]:
    effects: tuple[Effect, ...] = (Finish(outcome=outcome),)
    return Closed(**kept(state), outcome=outcome, reason=reason), effects
