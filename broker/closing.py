"""How a run ends at the coordinator: deadline, withdrawal, a message that is refused or missing.

It owns the moves to `Closed`, and whom the run waits for. It does not know what leads to a run's
success (training.py) or what its parties agree on (coordinator.py). Pure.
"""

from __future__ import annotations

from typing import Any, TypeVar

from broker.phases import Asking, Closed, Gathering, Offered, Phase, Training
from hdpvfl_mq.endings import Outcome, outcome_of, said_by
from hdpvfl_mq.machine import (
    OFFENCE_S,
    Arm,
    Finish,
    NoReleases,
    Offence,
    OperatorRequest,
    Received,
    Send,
    Step,
    TimerFired,
    arm,
)
from schemas.base import in_words
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import RunClosed, Withdraw

P = TypeVar("P", bound=Phase)
STUCK = {
    "offence": "{sender} sent the coordinator a message that the protocol does not allow. If the "
    "coordinator's journal was lost, or an older copy of it was put back, that is the cause, and "
    "{sender} is honest: put the newest copy back, or propose the run again under another name",
    "missing": "messages of {sender} to the coordinator are missing although later ones arrive",
}


class Closing(NoReleases):
    """The part of the coordinator's role that ends a run."""

    name: PartyId = COORDINATOR

    def __init__(self, manifest: RunManifest, manifest_digest: bytes) -> None:
        self.manifest = manifest
        self.manifest_digest = manifest_digest
        self.parties = manifest.parties

    def waiting_for(self, state: Phase) -> frozenset[PartyId]:
        """The parties whose next message the run needs."""
        return frozenset() if isinstance(state, Closed) else frozenset(self.parties) - state.done

    def delaying(self, state: Phase) -> frozenset[PartyId]:
        """The parties that keep the run waiting, as far as that is known.

        A party that has reported its own part may still withhold from others what they need.
        """
        waiting = self.waiting_for(state)
        known = state.announced if isinstance(state, Asking) else state.announced & waiting
        return known or waiting

    def deadline(self, state: Phase, given: TimerFired) -> Step[Closed]:
        waiting = ", ".join(sorted(self.delaying(state))) or "nobody"
        phase = type(state).__name__.lower()
        return self.close(state, "deadline", f"while {phase}, waiting for {waiting}")

    def withdraw(self, state: Phase, given: Received[Withdraw]) -> Step[Closed]:
        outcome = outcome_of(given.message.reason)
        return self.close(state, outcome, said_by(given.sender, given.message))

    def wronged(self, state: P, given: Offence) -> Step[P]:
        """A party's message was refused or is missing: check later whether the run advances."""
        return state, (self._probation(state, given.cause, given.sender),)

    def stuck(self, state: P, given: TimerFired) -> Step[P] | Step[Closed]:
        """The timer ran out: close the run if it has made no progress with that party.

        A party that keeps the run waiting elsewhere stays under observation.
        """
        cause, sender, place = given.timer.split(":")
        if place == self._place(state, sender):
            return self.close(state, "mismatch", STUCK[cause].format(sender=sender))
        if sender in self.waiting_for(state) and isinstance(state, Gathering | Offered):
            return state, (self._probation(state, cause, sender),)
        return state, ()

    def _probation(self, state: Phase, cause: str, sender: PartyId) -> Arm:
        return arm(f"{cause}:{sender}:{self._place(state, sender)}", OFFENCE_S)

    def _place(self, state: Phase, sender: PartyId) -> str:
        """How far the run is with one party; the text changes when its message is taken."""
        rounds = state.finished_rounds[sender] if isinstance(state, Training) else 0
        return f"{type(state).__name__}/{sender in state.done}/{rounds}".lower()

    def stop(self, state: Phase, given: OperatorRequest) -> Step[Closed]:
        return self.close(state, "withdrawn", "it was stopped; 'hdpvfl runs' says by whom")

    def close(self, state: Phase, outcome: Outcome, reason: str) -> Step[Closed]:
        """End the run for everybody."""
        rounds, planned = (state.rounds, state.planned) if isinstance(state, Training) else (0, 0)
        after = Closed(
            **common(state),
            outcome=outcome,
            reason=reason,
            rounds=rounds,
            planned=planned,
        )
        closed = RunClosed(outcome=outcome, reason=in_words(reason))
        return after, (Send(self.parties, closed), Finish(outcome=outcome))


def common(state: Phase) -> dict[str, Any]:
    """The fields that every phase hands on to the next one."""
    names = ("epochs", "commitments", "heard", "announced")
    return {name: getattr(state, name) for name in names}
