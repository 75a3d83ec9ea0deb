"""The coordinator: who takes part, when entities are resolved, which rounds may run.

It owns membership, the phases of a run and what happens when a party is absent; it never sees a
number computed from anybody's rows. A pure role: it reads no clock, timers arrive as inputs.
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
    Arm,
    Effect,
    Finish,
    Input,
    Move,
    Moves,
    NoReleases,
    Offence,
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
    Waiting,
    Welcome,
    Withdraw,
)

P = TypeVar("P", bound=Phase)
_MAX_BYTES = 2**26
STUCK = {
    "offence": "{sender} sent the coordinator a message that the protocol does not allow",
    "missing": "messages of {sender} to the coordinator are missing although later ones arrive",
}
ANSWER_S = 5.0  # how long parties may take to say for whom they wait
OFFENCE_S = 5.0  # how long a run may make no progress after a party's message was refused


class Coordinator(NoReleases):
    """The coordinator's role; everything it needs is in `manifest`."""

    name: PartyId = COORDINATOR

    def __init__(self, manifest: RunManifest, manifest_digest: bytes) -> None:
        self.manifest = manifest
        self.manifest_digest = manifest_digest
        self.parties = manifest.parties

    def initial(self) -> Phase:
        """The phase before any party has said hello."""
        return Gathering()

    def step(self, state: Phase, given: Input) -> Step[Any]:
        """Apply one move of the table below."""
        if isinstance(given, Received):
            state = replace(state, heard=state.heard | {given.sender})
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Phase) -> dict[str, Any]:
        """What the status shows; every party may see all of it."""
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
        """The state as bytes; possible in every phase."""
        phase = type(state).__name__
        return pack({"manifest": self.manifest_digest, "phase": phase, "state": to_plain(state)})

    def thaw(self, frozen: bytes) -> Phase | None:
        """The state from its bytes; None if it belongs to another manifest or cannot be read."""
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
        """A party's process has started, for the first time or again."""
        message = given.message
        epochs = MappingProxyType({**state.epochs, given.sender: message.epoch})
        commitments = {**state.commitments, given.sender: message.toss_commitment}
        state = replace(state, epochs=epochs, commitments=MappingProxyType(commitments))
        missing = tuple(p for p in self.parties if p not in epochs)
        welcome = Welcome(epoch=message.epoch, waiting_for=missing)
        return state, (Send((given.sender,), welcome),)

    def gather(self, state: Gathering, given: Received[Hello]) -> Step[Gathering | Offered]:
        """Offer the run once every party has said hello."""
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
        """Whether all parties keep the same alignment and the manifest allows its reuse."""
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
        """A party that reports as many residuals as the sender, but a different hash of them."""
        count, digest = state.residuals[sender]
        for party, (theirs, other) in sorted(state.residuals.items()):
            if theirs == count and other != digest:
                return party
        return None

    def plan_ahead(self, state: Training) -> Step[Training]:
        """Allow more rounds before any party has to wait for permission."""
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
        """Before the rounds every party is needed: keep waiting, and tell the parties for whom."""
        again = arm("watch", self.manifest.absent_after_s)
        silent = self.waiting_for(state) - state.heard
        told = state.told
        state = replace(state, heard=frozenset(), told=silent)
        if silent == told:
            return state, (again,)
        here = tuple(p for p in self.parties if p in state.epochs)
        pause = Pause(waiting_for=tuple(sorted(silent)))
        return state, ((Send(here, pause), again) if here else (again,))

    def say(self, state: Aligning, given: Received[Waiting]) -> Step[Aligning]:
        """A party answers whom it waits for."""
        waits = MappingProxyType({**state.waits, given.sender: given.message})
        return replace(state, waits=waits), ()

    def watch_aligning(self, state: Aligning, given: TimerFired) -> Step[Aligning]:
        """Parties resolve entities among themselves: ask them for whom they wait, then tell all."""
        again_s = self.manifest.absent_after_s
        if not state.asked:
            asking = replace(state, asked=True, heard=frozenset(), waits=MappingProxyType({}))
            pause = Pause(waiting_for=tuple(sorted(state.told)))
            return asking, (Send(self.parties, pause), arm("watch", min(ANSWER_S, again_s)))
        keeping = (self.waiting_for(state) - state.heard) or state.keeping
        told, state = state.told, replace(state, asked=False, told=keeping)
        again = arm("watch", again_s)
        if keeping == told:
            return state, (again,)
        return state, (Send(self.parties, Pause(waiting_for=tuple(sorted(keeping)))), again)

    def watch(self, state: Training, given: TimerFired) -> Step[Training]:
        """Ask silent parties; if they do not answer, apply the manifest's absence policy."""
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
        """A party is back: it takes part again from the first round that is not yet planned."""
        state = replace(state, absent=state.absent - {party})
        return state, (Send(self.parties, _resume(state)),)

    # -- the end ------------------------------------------------------------------------------

    def deadline(self, state: Phase, given: TimerFired) -> Step[Closed]:
        keeping = (state.told & self.waiting_for(state)) or self.waiting_for(state)
        waiting = ", ".join(sorted(keeping)) or "nobody"
        phase = type(state).__name__.lower()
        return self.close(state, "deadline", f"while {phase}, waiting for {waiting}")

    def withdraw(self, state: Phase, given: Received[Withdraw]) -> Step[Closed]:
        outcome = outcome_of(given.message.reason)
        return self.close(state, outcome, said_by(given.sender, given.message))

    def wronged(self, state: P, given: Offence) -> Step[P]:
        """A party's message was refused or is missing: see in a while if the run still advances."""
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
    """Names the absent parties; a party that is back takes part from the first unplanned round."""
    return Resume(round=state.planned, absent=tuple(sorted(state.absent)))


_C = Coordinator
_SAME: tuple[type, ...] = ()
MOVES: Moves = {
    (Phase, "started"): Move(_C.started, _SAME),
    (Phase, "hello"): Move(_C.hello, _SAME),
    (Phase, "withdraw"): Move(_C.withdraw, (Closed,)),
    (Phase, "offence"): Move(_C.wronged, _SAME),
    **{
        (phase, timer): Move(_C.stuck, (phase, Closed))
        for phase in (Gathering, Offered, Aligning, Training)
        for timer in ("timer:offence", "timer:missing")
    },
    (Phase, "operator:close"): Move(_C.stop, (Closed,)),
    (Phase, "timer:deadline"): Move(_C.deadline, (Closed,)),
    (Phase, "timer:watch"): Move(_C.wait_on, _SAME),
    (Gathering, "hello"): Move(_C.gather, (Gathering, Offered)),
    (Offered, "run_accept"): Move(_C.accept, (Offered, Aligning, Closed)),
    (Offered, "run_refuse"): Move(_C.refuse, (Closed,)),
    (Aligning, "aligned"): Move(_C.align, (Aligning, Training, Closed)),
    (Aligning, "run_refuse"): Move(_C.refuse, (Closed,)),
    (Aligning, "timer:watch"): Move(_C.watch_aligning, _SAME),
    (Phase, "waiting"): Move(stay, _SAME),
    (Aligning, "waiting"): Move(_C.say, _SAME),
    (Training, "round_report"): Move(_C.report, (Training, Closed)),
    (Training, "timer:watch"): Move(_C.watch, _SAME),
    # Messages that were in flight when the run ended.
    (Closed, "run_accept"): Move(stay, _SAME),
    (Closed, "run_refuse"): Move(stay, _SAME),
    (Closed, "aligned"): Move(stay, _SAME),
    (Closed, "round_report"): Move(stay, _SAME),
    (Closed, "withdraw"): Move(stay, _SAME),
    (Closed, "offence"): Move(stay, _SAME),
    (Closed, "timer:offence"): Move(stay, _SAME),
    (Closed, "timer:missing"): Move(stay, _SAME),
    (Closed, "operator:close"): Move(stay, _SAME),
    (Closed, "timer:watch"): Move(stay, _SAME),
    (Closed, "timer:deadline"): Move(stay, _SAME),
}
