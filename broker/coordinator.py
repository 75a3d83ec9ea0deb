"""The coordinator: who takes part, when entities are resolved, which rounds may run.

It owns membership, the phases of a run and their table of moves; training.py has the rounds,
closing.py the end. It never sees a number computed from anybody's rows. A pure role: it reads no
clock, timers arrive as inputs.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from broker.closing import common
from broker.phases import PHASES, Aligning, Asking, Closed, Gathering, Offered, Phase, Training
from broker.training import CoordinatorRounds
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Input,
    Move,
    Moves,
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
from schemas.ids import PartyId
from schemas.messages import (
    Aligned,
    AlignStart,
    Hello,
    Pause,
    RunAccept,
    RunOffer,
    RunRefuse,
    Waiting,
    Welcome,
)

P = TypeVar("P", bound=Phase)
A = TypeVar("A", bound=Asking)
_MAX_BYTES = 2**26
ANSWER_S = 5.0  # how long parties may take to say for whom they wait
ANSWER_PARTY_S = 0.05  # hundreds of parties answer later


class Coordinator(CoordinatorRounds):
    """The coordinator's role; everything it needs is in `manifest`."""

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
            "waiting_for": list(self.awaits(state)),
            "rounds": planned[0],
            "planned": planned[1],
            "outcome": state.outcome if isinstance(state, Closed) else "",
            "reason": state.reason if isinstance(state, Closed) else "",
        }

    def awaits(self, state: Phase) -> tuple[PartyId, ...]:
        """The parties that keep the run waiting."""
        return tuple(sorted(self.delaying(state)))

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
        return Offered(**common(state)), (*welcome, offer)

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
        return Aligning(**common(state)), (Send(self.parties, start),)

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
            **{**common(state), "announced": frozenset()},
            plan_digest=message.plan_digest,
            rounds=message.rounds,
            finished_rounds=MappingProxyType(dict.fromkeys(self.parties, 0)),
        )
        return self.plan_ahead(training)

    # -- waiting ------------------------------------------------------------------------------

    def wait_on(self, state: P, given: TimerFired) -> Step[P]:
        """Before the rounds every party is needed: keep waiting, and tell the parties for whom."""
        again = arm("watch", self._watch_s)
        silent = self.waiting_for(state) - state.heard
        announced = state.announced
        state = replace(state, heard=frozenset(), announced=silent)
        if silent == announced:
            return state, (again,)
        here = tuple(p for p in self.parties if p in state.epochs)
        pause = Pause(waiting_for=tuple(sorted(silent)))
        return state, ((Send(here, pause), again) if here else (again,))

    def say(self, state: A, given: Received[Waiting]) -> Step[A]:
        """A party answers whom it waits for."""
        if not set(given.message.waiting_for) <= {*self.parties} - {given.sender}:
            raise PeerError("names itself or a name that is not in this run")
        waits = MappingProxyType({**state.waits, given.sender: given.message})
        return replace(state, waits=waits), ()

    def watch_aligning(self, state: Aligning, given: TimerFired) -> Step[Aligning]:
        """Parties resolve entities among themselves: ask them for whom they wait, then tell all."""
        again_s = self._watch_s
        if not state.asked:
            asking = replace(state, asked=True, heard=frozenset(), waits=MappingProxyType({}))
            pause = Pause(waiting_for=tuple(sorted(state.announced)))
            answer_s = max(ANSWER_S, ANSWER_PARTY_S * len(self.parties))
            return asking, (Send(self.parties, pause), arm("watch", min(answer_s, again_s)))
        delaying = (self.waiting_for(state) - state.heard) or state.delaying
        announced, state = state.announced, replace(state, asked=False, announced=delaying)
        again = arm("watch", again_s)
        if delaying == announced:
            return state, (again,)
        return state, (Send(self.parties, Pause(waiting_for=tuple(sorted(delaying)))), again)


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
    (Asking, "waiting"): Move(_C.say, _SAME),
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
