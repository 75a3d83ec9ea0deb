"""Leaving a run: this party leaves, or a peer has left.

It owns how all parties learn of it; closing.py decides which outcome of the coordinator a party
accepts. A party that leaves tells all parties, not only the coordinator, and waits only a few
seconds for the coordinator to close the run.
"""

from __future__ import annotations

from typing import Any, TypeVar

from hdpvfl_mq.endings import outcome_of, said_by, why
from hdpvfl_mq.machine import (
    OFFENCE_S,
    Arm,
    Effect,
    Finish,
    Offence,
    OperatorRequest,
    Received,
    Send,
    Step,
    TimerFired,
    arm,
)
from parties.assets import Assets
from parties.awaited import awaited
from parties.phases import (
    ActiveRounds,
    Agreeing,
    Aligned,
    Aligning,
    Closed,
    Joining,
    Leaving,
    Over,
    Running,
    Training,
    WithRows,
)
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Withdraw, WithdrawReason

CLOSING_S = 5.0  # how long to wait for the coordinator to close the run
GRACE_S = 30.0  # at a deadline, how much later than the coordinator a party ends the run
R = TypeVar("R", bound=Running)


def leave(
    own: Assets,
    state: Running,
    reason: WithdrawReason,
    *,
    about: PartyId | None = None,
    detail: str = "",
) -> Step[Leaving]:
    """Leave the run and tell all; `detail` is for this party's console only."""
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
    """The operator asks to leave; what is spent stays spent."""
    return leave(own, state, "operator")


def wronged(own: Assets, state: R, given: Offence) -> Step[R]:
    """A peer's message was refused or is missing: check later whether the run advances."""
    return state, (_probation(state, given.cause, given.sender),)


def stuck(own: Assets, state: Running, given: TimerFired) -> Step[Any]:
    """The timer ran out: leave, naming the peer, if the run has made no progress with it.

    A peer that keeps this party waiting elsewhere stays under observation.
    """
    cause, sender, place = given.timer.split(":")
    if place == _place(state, sender):
        return leave(own, state, _reason(own, state, cause), about=sender)
    return state, (_probation(state, cause, sender),) if sender in awaited(own, state) else ()


def _reason(own: Assets, state: Running, cause: str) -> WithdrawReason:
    """The reason to state: a bad message, a missing one, or orders that did not arrive.

    Where rounds may run without this party, the active party may follow orders of the coordinator
    that this party has not received. Its residuals are refused here although it may be honest.
    """
    if cause == "missing":
        return "missing"
    has_orders = not isinstance(state, Aligned) and not (
        isinstance(state, Training) and state.round >= state.planned and not state.is_done
    )
    if own.role == "active" or not isinstance(state, WithRows) or has_orders:
        return "message"
    return "message" if state.manifest.absence == "wait" else "orders"


def _probation(state: Running, cause: str, sender: PartyId) -> Arm:
    return arm(f"{cause}:{sender}:{_place(state, sender)}", OFFENCE_S)


def _place(state: Running, sender: PartyId) -> str:
    """How far the run is with one peer; the text changes when its message is taken."""
    parts: tuple[object, ...] = ()
    if isinstance(state, Training):
        rounds = state.rounds
        shared = isinstance(rounds, ActiveRounds) and sender in rounds.shares
        # A peer's ending is not progress while this party still waits for its share.
        ended = state.is_done and sender in state.endings
        parts = (state.planned, state.round, shared, ended, state.has_reported)
    elif isinstance(state, Aligning):
        parts = (state.session.place(sender),)
    elif isinstance(state, Agreeing):
        parts = (sender in state.agreements,)
    return "/".join((type(state).__name__, *(str(part) for part in parts))).lower()


def peer_left(own: Assets, state: Running, given: Received[Withdraw]) -> Step[Leaving]:
    """A peer has left: the run cannot go on, whatever the coordinator says."""
    reason = said_by(given.sender, given.message)
    after = _leaving(state, outcome_of(given.message.reason), state.reason or reason)
    return after, (arm("closing", CLOSING_S),)


def too_long(own: Assets, state: Running, given: TimerFired) -> Step[Leaving]:
    """The manifest's deadline has passed and the coordinator has not closed the run."""
    return leave(own, state, "deadline")


def too_late(own: Assets, state: Leaving, given: TimerFired) -> Step[Closed]:
    """The coordinator does not answer: end the run without it."""
    return close(state, state.outcome, state.reason)


def close(state: Running, outcome: str, reason: str) -> Step[Closed]:
    effects: tuple[Effect, ...] = (Finish(outcome=outcome),)
    return Closed(**kept(state), outcome=outcome, reason=reason), effects
