"""The coordinator: who takes part, when entities are resolved, which rounds may run.

It owns membership, the phases of a run and what happens when a party stays away; it never sees a
number computed from anybody's rows. A pure role: it reads no clock, timers come as inputs.

gathering -> offered -> aligning -> training -> closed
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from broker.state import CoordinatorState, freeze, thaw
from hdpvfl_mq.machine import (
    Arm,
    Effect,
    Finish,
    Fired,
    Input,
    Moves,
    Received,
    Send,
    Started,
    Step,
    dispatch,
    stay,
)
from hdpvfl_mq.psi import choose_method
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

WHY = {
    "operator": "its operator asked for it",
    "budget": "its privacy budget does not allow the run",
    "rows": "the number of common rows, which is withheld, is outside alignment.rows_min..rows_max "
    "or does not allow the plan",
    "deadline": "it has waited too long",
}


State = CoordinatorState


class Coordinator:
    """The role; `manifest` is all it is made of."""

    name: PartyId = COORDINATOR

    def __init__(self, manifest: RunManifest, manifest_digest: bytes) -> None:
        self.manifest = manifest
        self.manifest_digest = manifest_digest
        self.parties = (manifest.active_party, *manifest.passive_parties)

    def initial(self) -> State:
        """Nobody has come yet."""
        return CoordinatorState()

    def step(self, state: State, given: Input) -> Step[State]:
        """One move of the table below."""
        if isinstance(given, Received):
            state = replace(state, heard=state.heard | {given.sender})
        return dispatch(MOVES, self, state, given)

    def progress(self, state: State) -> dict[str, Any]:
        """Everything the coordinator knows is public among the parties."""
        return {
            "phase": state.phase,
            "joined": sorted(state.epochs),
            "waiting_for": sorted(self.waiting_for(state)),
            "rounds": state.rounds,
            "planned": state.planned,
            "outcome": state.outcome,
            "reason": state.reason,
        }

    def freeze(self, state: State) -> bytes:
        """The state as bytes, at any time."""
        return freeze(state, self.manifest_digest)

    def thaw(self, frozen: bytes) -> State | None:
        """The state again, under the same manifest."""
        return thaw(frozen, self.manifest_digest)

    def waiting_for(self, state: State) -> set[PartyId]:
        """The parties whose next word the run needs."""
        heard: dict[str, set[PartyId]] = {
            "gathering": set(state.epochs),
            "offered": set(state.accepted),
            "aligning": set(state.aligned),
            "training": set(state.finished),
        }
        return set(self.parties) - heard.get(state.phase, set(self.parties)) - state.absent

    # -- gathering and offering ---------------------------------------------------------------

    def started(self, state: State, given: Started) -> Step[State]:
        if given.epoch > 1:
            return state, ()
        manifest = self.manifest
        return state, (
            Arm("deadline", manifest.deadline_s),
            Arm("watch", manifest.absent_after_s),
        )

    def hello(self, state: State, given: Received) -> Step[State]:
        message: Hello = given.message  # type: ignore[assignment]
        epochs = MappingProxyType({**state.epochs, given.sender: message.epoch})
        commitments = {**state.commitments, given.sender: message.seed_commitment}
        state = replace(state, epochs=epochs, commitments=MappingProxyType(commitments))
        missing = tuple(p for p in self.parties if p not in epochs)
        effects: list[Effect] = [
            Send((given.sender,), Welcome(epoch=message.epoch, waiting_for=missing))
        ]
        if state.phase == "gathering" and not missing:
            state = replace(state, phase="offered")
            effects.append(Send(self.parties, RunOffer(manifest=self.manifest)))
        return state, tuple(effects)

    def accept(self, state: State, given: Received) -> Step[State]:
        message: RunAccept = given.message  # type: ignore[assignment]
        if message.manifest_digest != self.manifest_digest:
            return self.close(state, "mismatch", f"{given.sender} read another manifest")
        accepted = MappingProxyType({**state.accepted, given.sender: message})
        state = replace(state, accepted=accepted)
        if len(accepted) < len(self.parties):
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
        start = AlignStart(method=self._method(state), commitments=commitments)
        return replace(state, phase="aligning"), (Send(self.parties, start),)

    def _method(self, state: State) -> Literal["ecdh", "oprf", "kept"]:
        """How the common rows are found: not at all again where all keep the same alignment."""
        wanted, accepted = self.manifest.alignment, state.accepted.values()
        named = {accept.kept_alignment for accept in accepted}
        if wanted.reuse and len(named) == 1 and None not in named:
            return "kept"
        if wanted.method != "auto":
            return wanted.method
        return choose_method(accept.set_size for accept in accepted)

    def refuse(self, state: State, given: Received) -> Step[State]:
        message: RunRefuse = given.message  # type: ignore[assignment]
        return self.close(state, "refused", f"{given.sender}: {message.rule}")

    # -- aligning and training ----------------------------------------------------------------

    def align(self, state: State, given: Received) -> Step[State]:
        message: Aligned = given.message  # type: ignore[assignment]
        aligned = MappingProxyType({**state.aligned, given.sender: message})
        state = replace(state, aligned=aligned)
        if len(aligned) < len(self.parties):
            return state, ()
        if len({(a.rows, a.rounds, a.order_digest, a.plan_digest) for a in aligned.values()}) != 1:
            return self.close(state, "mismatch", "the parties disagree on the common rows")
        state = replace(
            state,
            phase="training",
            plan_digest=message.plan_digest,
            rounds=message.rounds,
            finished_rounds=MappingProxyType(dict.fromkeys(self.parties, 0)),
        )
        return self.plan_ahead(state)

    def report(self, state: State, given: Received) -> Step[State]:
        message: RoundReport = given.message  # type: ignore[assignment]
        done = max(message.rounds_done, state.finished_rounds[given.sender])
        state = replace(
            state,
            finished_rounds=MappingProxyType({**state.finished_rounds, given.sender: done}),
            finished=state.finished | ({given.sender} if message.last else set()),
        )
        if not self.waiting_for(state):
            return self.close(state, "completed", "")
        effects: tuple[Effect, ...] = ()
        if given.sender in state.absent:
            state, effects = self.readmit(state, given.sender)
        state, more = self.plan_ahead(state)
        return state, (*effects, *more)

    def plan_ahead(self, state: State) -> Step[State]:
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

    def watch(self, state: State, given: Fired) -> Step[State]:
        """Nobody heard for a while: ask; nobody answers: act by the manifest's policy."""
        again = Arm("watch", self.manifest.absent_after_s)
        silent = self.waiting_for(state) - state.heard
        state = replace(state, heard=frozenset())
        if state.phase != "training":
            return state, (again,)
        if not silent:
            if not state.asked:
                return state, (again,)
            return replace(state, asked=False), (Send(self.parties, self._resume(state)), again)
        if not state.asked:
            pause = Pause(waiting_for=tuple(sorted(silent)))
            return replace(state, asked=True), (Send(self.parties, pause), again)
        if self.manifest.absence == "wait" or self.manifest.active_party in silent:
            return state, (again,)
        state = replace(state, absent=state.absent | silent, asked=False)
        effects: tuple[Effect, ...] = (Send(self.parties, self._resume(state)), again)
        state, more = self.plan_ahead(state)
        return state, (*effects, *more)

    def readmit(self, state: State, party: PartyId) -> Step[State]:
        """A party is back: it takes part again from the first round nobody may have begun."""
        state = replace(state, absent=state.absent - {party})
        return state, (Send(self.parties, self._resume(state)),)

    def _resume(self, state: State) -> Resume:
        """Who is left out; who was and is back takes part from the first round not yet planned."""
        stand_in: Literal["last", "nothing"] = (
            "last" if self.manifest.absence == "last" else "nothing"
        )
        return Resume(round=state.planned, absent=tuple(sorted(state.absent)), stand_in=stand_in)

    # -- the end ------------------------------------------------------------------------------

    def deadline(self, state: State, given: Fired) -> Step[State]:
        waiting = ", ".join(sorted(self.waiting_for(state))) or "nobody"
        return self.close(state, "deadline", f"while {state.phase}, waiting for {waiting}")

    def withdraw(self, state: State, given: Received) -> Step[State]:
        message: Withdraw = given.message  # type: ignore[assignment]
        return self.close(state, "withdrawn", f"{given.sender} withdrew: {WHY[message.reason]}")

    def close(self, state: State, outcome: Any, reason: str) -> Step[State]:
        state = replace(state, phase="closed", outcome=outcome, reason=reason)
        closed = RunClosed(outcome=outcome, reason=reason)
        return state, (Send(self.parties, closed), Finish(outcome))


_C = Coordinator
MOVES: Moves = {
    ("*", "started"): _C.started,
    ("*", "hello"): _C.hello,
    ("gathering", "timer:watch"): _C.watch,
    ("gathering", "timer:deadline"): _C.deadline,
    ("gathering", "withdraw"): _C.withdraw,
    ("offered", "run_accept"): _C.accept,
    ("offered", "run_refuse"): _C.refuse,
    ("offered", "timer:watch"): _C.watch,
    ("offered", "timer:deadline"): _C.deadline,
    ("offered", "withdraw"): _C.withdraw,
    ("aligning", "aligned"): _C.align,
    ("aligning", "run_refuse"): _C.refuse,
    ("aligning", "timer:watch"): _C.watch,
    ("aligning", "timer:deadline"): _C.deadline,
    ("aligning", "withdraw"): _C.withdraw,
    ("training", "round_report"): _C.report,
    ("training", "timer:watch"): _C.watch,
    ("training", "timer:deadline"): _C.deadline,
    ("training", "withdraw"): _C.withdraw,
    # What was on its way when the run ended.
    ("closed", "run_accept"): stay,
    ("closed", "run_refuse"): stay,
    ("closed", "aligned"): stay,
    ("closed", "round_report"): stay,
    ("closed", "withdraw"): stay,
    ("closed", "timer:watch"): stay,
    ("closed", "timer:deadline"): stay,
}
