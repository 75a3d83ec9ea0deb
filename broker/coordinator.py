"""The coordinator: who takes part, when entities are resolved, which rounds may run.

It owns membership, the phases of a run and what happens when a party stays away; it never sees a
number computed from anybody's rows. A pure role: it reads no clock, timers come as inputs.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from broker.phases import PHASES, Aligning, Closed, Gathering, Offered, Phase, Training
from hdpvfl_mq.endings import Outcome, outcome_of, said_by
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    Finish,
    Input,
    Move,
    Moves,
    OperatorRequest,
    Received,
    Send,
    Started,
    Step,
    TimerFired,
    arm,
    dispatch,
    stay,
)
from hdpvfl_mq.node.frozen import fields_from_plain, to_plain
from hdpvfl_mq.wire.canonical import pack, unpack
from schemas.base import in_words
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import (
    Aligned,
    AlignStart,
    Hello,
    Pause,
    Resume,
    RoundPlan,
    RoundReport,
    RunAccept,
    RunClosed,
    RunOffer,
    RunRefuse,
    Welcome,
    Withdraw,
)

P = TypeVar("P", bound=Phase)
_MAX_BYTES = 2**26


class Coordinator:
    """The role; `manifest` is all it is made of."""

    name: PartyId = COORDINATOR

    def __init__(self, manifest: RunManifest, manifest_digest: bytes) -> None:
        self.manifest = manifest
        self.manifest_digest = manifest_digest
        self.parties = manifest.parties

    def initial(self) -> Phase:
        """Nobody has come yet."""
        return Gathering()

    def step(self, state: Phase, given: Input) -> Step[Any]:
        """One move of the table below."""
        if isinstance(given, Received):
            state = replace(state, heard=state.heard | {given.sender})
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Phase) -> dict[str, Any]:
        """Everything the coordinator knows is public among the parties."""
        planned = (state.rounds, state.planned) if isinstance(state, Training | Closed) else (0, 0)
        return {
            "phase": type(state).__name__.lower(),
            "joined": sorted(state.epochs),
            "waiting_for": sorted(self.waiting_for(state)),
            "rounds": planned[0],
            "planned": planned[1],
            "outcome": state.outcome if isinstance(state, Closed) else "",
            "reason": state.reason if isinstance(state, Closed) else "",
        }

    def freeze(self, state: Phase) -> bytes:
        """The state as bytes, at any time."""
        phase = type(state).__name__
        return pack({"manifest": self.manifest_digest, "phase": phase, "state": to_plain(state)})

    def thaw(self, frozen: bytes) -> Phase | None:
        """The state again; None if it belongs to another manifest or cannot be read."""
        try:
            stored = unpack(frozen, max_bytes=_MAX_BYTES)
            if stored["manifest"] != self.manifest_digest:
                return None
            phase = PHASES[stored["phase"]]
            return phase(**fields_from_plain(phase, stored["state"]))
        except (PeerError, ValidationError, ValueError, KeyError, TypeError):
            return None

    def waiting_for(self, state: Phase) -> frozenset[PartyId]:
        """The parties whose next message the run needs."""
        return frozenset() if isinstance(state, Closed) else frozenset(self.parties) - state.done

    # -- gathering and offering ---------------------------------------------------------------

    def started(self, state: P, given: Started) -> Step[P]:
        if given.epoch > 1:
            return state, ()
        manifest = self.manifest
        return state, (
            arm("deadline", manifest.deadline_s),
            arm("watch", manifest.absent_after_s),
        )

    def hello(self, state: P, given: Received[Hello]) -> Step[P]:
        """A process has started, the first or a later one of its party."""
        message = given.message
        epochs = MappingProxyType({**state.epochs, given.sender: message.epoch})
        commitments = {**state.commitments, given.sender: message.toss_commitment}
        state = replace(state, epochs=epochs, commitments=MappingProxyType(commitments))
        missing = tuple(p for p in self.parties if p not in epochs)
        welcome = Welcome(epoch=message.epoch, waiting_for=missing)
        return state, (Send((given.sender,), welcome),)

    def gather(self, state: Gathering, given: Received[Hello]) -> Step[Gathering | Offered]:
        """Offer the run once every party has come."""
        state, welcome = self.hello(state, given)
        if self.waiting_for(state):
            return state, welcome
        offer = Send(self.parties, RunOffer(manifest=self.manifest))
        return Offered(**_common(state)), (*welcome, offer)

    def accept(
        self, state: Offered, given: Received[RunAccept]
    ) -> Step[Offered | Aligning | Closed]:
        if given.message.manifest_digest != self.manifest_digest:
            return self.close(state, "mismatch", f"{given.sender} read another manifest")
        accepted = MappingProxyType({**state.accepted, given.sender: given.message})
        state = replace(state, accepted=accepted)
        if self.waiting_for(state):
            return state, ()
        first = accepted[self.parties[0]]
        for party in self.parties[1:]:
            if accepted[party].id_profile_digest != first.id_profile_digest:
                return self.close(
                    state,
                    "mismatch",
                    f"{party} and {self.parties[0]} normalise ids differently: compare "
                    "alignment.* and the id columns in their settings",
                )
        commitments = tuple(state.commitments[p] for p in self.parties)
        start = AlignStart(is_kept=self._is_kept(state), commitments=commitments)
        return Aligning(**_common(state)), (Send(self.parties, start),)

    def _is_kept(self, state: Offered) -> bool:
        """Whether all keep the same alignment and may use it again."""
        named = {accept.kept_alignment for accept in state.accepted.values()}
        return self.manifest.alignment.reuse and len(named) == 1 and None not in named

    def refuse(self, state: Phase, given: Received[RunRefuse]) -> Step[Closed]:
        return self.close(state, "refused", f"{given.sender}: {given.message.rule}")

    # -- aligning and training ----------------------------------------------------------------

    def align(
        self, state: Aligning, given: Received[Aligned]
    ) -> Step[Aligning | Training] | Step[Closed]:
        message = given.message
        aligned = MappingProxyType({**state.aligned, given.sender: message})
        state = replace(state, aligned=aligned)
        if self.waiting_for(state):
            return state, ()
        if len({(a.rows, a.rounds, a.order_digest, a.plan_digest) for a in aligned.values()}) != 1:
            return self.close(state, "mismatch", "the parties disagree on the common rows")
        training = Training(
            **_common(state),
            plan_digest=message.plan_digest,
            rounds=message.rounds,
            finished_rounds=MappingProxyType(dict.fromkeys(self.parties, 0)),
        )
        return self.plan_ahead(training)

    def report(
        self, state: Training, given: Received[RoundReport]
    ) -> Step[Training] | Step[Closed]:
        message = given.message
        done = max(message.rounds_done, state.finished_rounds[given.sender])
        heard = (message.residuals, message.residuals_digest)
        state = replace(
            state,
            finished_rounds=MappingProxyType({**state.finished_rounds, given.sender: done}),
            finished=state.finished | ({given.sender} if message.last else frozenset()),
            residuals=MappingProxyType({**state.residuals, given.sender: heard}),
        )
        if (other := self._contradicted(state, given.sender)) is not None:
            active = self.manifest.active_party
            return self.close(
                state,
                "mismatch",
                f"{given.sender} and {other} have not had the same residuals of {active}, or one "
                "of them says so: their journals show who lies",
            )
        if not self.waiting_for(state):
            return self.close(state, "completed", "")
        effects: tuple[Effect, ...] = ()
        if given.sender in state.absent:
            state, effects = self.readmit(state, given.sender)
        state, more = self.plan_ahead(state)
        return state, (*effects, *more)

    def _contradicted(self, state: Training, sender: PartyId) -> PartyId | None:
        """A party that has had as many residuals as the sender, but other ones."""
        count, digest = state.residuals[sender]
        for party, (theirs, other) in sorted(state.residuals.items()):
            if theirs == count and other != digest:
                return party
        return None

    def plan_ahead(self, state: Training) -> Step[Training]:
        """Allow more rounds before anybody has to wait for the permission."""
        present = [p for p in self.parties if p not in state.absent]
        slowest = min(state.finished_rounds[p] for p in present)
        ahead = self.manifest.rounds_ahead
        if state.planned >= state.rounds or state.planned - slowest > ahead // 2:
            return state, ()
        last = min(state.rounds, state.planned + ahead)
        plan = RoundPlan(first=state.planned, last=last, plan_digest=state.plan_digest)
        return replace(state, planned=last), (Send(self.parties, plan),)

    # -- absence ------------------------------------------------------------------------------

    def wait_on(self, state: P, given: TimerFired) -> Step[P]:
        """Before the rounds everybody is needed: go on waiting, and say for whom."""
        again = arm("watch", self.manifest.absent_after_s)
        silent = self.waiting_for(state) - state.heard
        told = state.told
        state = replace(state, heard=frozenset(), told=silent)
        if silent == told:
            return state, (again,)
        here = tuple(p for p in self.parties if p in state.epochs)
        pause = Pause(waiting_for=tuple(sorted(silent)))
        return state, ((Send(here, pause), again) if here else (again,))

    def watch(self, state: Training, given: TimerFired) -> Step[Training]:
        """Nobody heard for a while: ask; nobody answers: act by the manifest's policy."""
        again = arm("watch", self.manifest.absent_after_s)
        silent = self.waiting_for(state) - state.heard
        state = replace(state, heard=frozenset())
        if not silent:
            if not state.asked:
                return state, (again,)
            return replace(state, asked=False), (Send(self.parties, _resume(state)), again)
        if not state.asked:
            pause = Pause(waiting_for=tuple(sorted(silent)))
            return replace(state, asked=True), (Send(self.parties, pause), again)
        if self.manifest.absence == "wait" or self.manifest.active_party in silent:
            return state, (again,)
        state = replace(state, absent=state.absent | silent, asked=False)
        effects: tuple[Effect, ...] = (Send(self.parties, _resume(state)), again)
        state, more = self.plan_ahead(state)
        return state, (*effects, *more)

    def readmit(self, state: Training, party: PartyId) -> Step[Training]:
        """A party is back: it takes part again from the first round nobody may have begun."""
        state = replace(state, absent=state.absent - {party})
        return state, (Send(self.parties, _resume(state)),)

    # -- the end ------------------------------------------------------------------------------

    def deadline(self, state: Phase, given: TimerFired) -> Step[Closed]:
        waiting = ", ".join(sorted(self.waiting_for(state))) or "nobody"
        phase = type(state).__name__.lower()
        return self.close(state, "deadline", f"while {phase}, waiting for {waiting}")

    def withdraw(self, state: Phase, given: Received[Withdraw]) -> Step[Closed]:
        outcome = outcome_of(given.message.reason)
        return self.close(state, outcome, said_by(given.sender, given.message))

    def stop(self, state: Phase, given: OperatorRequest) -> Step[Closed]:
        return self.close(state, "withdrawn", "it was stopped; 'hdpvfl runs' says by whom")

    def close(self, state: Phase, outcome: Outcome, reason: str) -> Step[Closed]:
        """End the run for everybody."""
        rounds, planned = (state.rounds, state.planned) if isinstance(state, Training) else (0, 0)
        after = Closed(
            **_common(state),
            outcome=outcome,
            reason=reason,
            rounds=rounds,
            planned=planned,
        )
        closed = RunClosed(outcome=outcome, reason=in_words(reason))
        return after, (Send(self.parties, closed), Finish(outcome=outcome))


def _common(state: Phase) -> dict[str, Any]:
    names = ("epochs", "commitments", "heard", "told")
    return {name: getattr(state, name) for name in names}


def _resume(state: Training) -> Resume:
    """Who is left out; who was and is back takes part from the first round not yet planned."""
    return Resume(round=state.planned, absent=tuple(sorted(state.absent)))


_C = Coordinator
_SAME: tuple[type, ...] = ()
MOVES: Moves = {
    (Phase, "started"): Move(_C.started, _SAME),
    (Phase, "hello"): Move(_C.hello, _SAME),
    (Phase, "withdraw"): Move(_C.withdraw, (Closed,)),
    (Phase, "operator:close"): Move(_C.stop, (Closed,)),
    (Phase, "timer:deadline"): Move(_C.deadline, (Closed,)),
    (Phase, "timer:watch"): Move(_C.wait_on, _SAME),
    (Gathering, "hello"): Move(_C.gather, (Gathering, Offered)),
    (Offered, "run_accept"): Move(_C.accept, (Offered, Aligning, Closed)),
    (Offered, "run_refuse"): Move(_C.refuse, (Closed,)),
    (Aligning, "aligned"): Move(_C.align, (Aligning, Training, Closed)),
    (Aligning, "run_refuse"): Move(_C.refuse, (Closed,)),
    (Training, "round_report"): Move(_C.report, (Training, Closed)),
    (Training, "timer:watch"): Move(_C.watch, _SAME),
    # What was on its way when the run ended.
    (Closed, "run_accept"): Move(stay, _SAME),
    (Closed, "run_refuse"): Move(stay, _SAME),
    (Closed, "aligned"): Move(stay, _SAME),
    (Closed, "round_report"): Move(stay, _SAME),
    (Closed, "withdraw"): Move(stay, _SAME),
    (Closed, "operator:close"): Move(stay, _SAME),
    (Closed, "timer:watch"): Move(stay, _SAME),
    (Closed, "timer:deadline"): Move(stay, _SAME),
}
