"""A party whose data or settings stop it before it has joined: it tells the others and ends.

It owns the two moves of this role. It knows no rows, because it has none; what is wrong is shown to
its operator only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hdpvfl_mq.machine import (
    Finish,
    Input,
    Move,
    Moves,
    NoReleases,
    Received,
    Send,
    Started,
    Step,
    TimerFired,
    arm,
    dispatch,
    stay,
)
from parties.leaving import CLOSING_S
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import NOTICES, Hello, RunClosed, Withdraw

REASON = "this party's own data or settings stop it"
_NOTHING = bytes(32)  # it commits to nothing and has no rows


@dataclass(frozen=True)
class Phase:
    """Both phases show the same reason."""

    reason: str = REASON


@dataclass(frozen=True)
class Telling(Phase):
    """The others do not know yet."""


@dataclass(frozen=True)
class Told(Phase):
    """The run is over."""


class Unable(NoReleases):
    """The role of a party that cannot take part."""

    def __init__(self, party: PartyId, others: tuple[PartyId, ...]) -> None:
        self.name, self.others = party, others

    def initial(self) -> Telling:
        """The phase before the others know."""
        return Telling()

    def step(self, state: Any, given: Input) -> Step[Any]:
        """Apply one move of the table below."""
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Any) -> dict[str, Any]:
        """What this party's operator sees."""
        return {"phase": "stopped", "reason": state.reason}

    def freeze(self, state: Any) -> bytes | None:
        """None: there is nothing to store."""
        return None

    def thaw(self, frozen: bytes) -> Any | None:
        """None: there is nothing to restore."""
        return None

    def started(self, state: Telling, given: Started) -> Step[Telling]:
        """Withdraw, then say hello: the hello binds the connection, and no offer precedes it."""
        hello = Hello(
            epoch=given.epoch,
            seed_commitment=_NOTHING,
            toss_commitment=_NOTHING,
            dataset_fingerprint=_NOTHING,
            numeric_profile="",
            ledger=given.standing.head,
        )
        left = Send((COORDINATOR, *self.others), Withdraw(reason="data"))
        return state, (left, Send((COORDINATOR,), hello), arm("closing", CLOSING_S))

    def closed(self, state: Telling, given: Received[RunClosed] | TimerFired) -> Step[Told]:
        """The coordinator has closed the run, or the wait is over."""
        return Told(), (Finish(outcome="withdrawn"),)


MOVES: Moves = {
    (Telling, "started"): Move(Unable.started, (Telling,)),
    (Telling, "run_closed"): Move(Unable.closed, (Told,)),
    (Telling, "timer:closing"): Move(Unable.closed, (Told,)),
    (Told, "run_closed"): Move(stay, ()),
    (Told, "timer:closing"): Move(stay, ()),
    **{(phase, kind): Move(stay, ()) for phase in (Telling, Told) for kind in NOTICES},
}
