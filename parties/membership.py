"""A party's side of a federation: whom it knows, which runs it was asked for and takes part in.

It owns the party's memory of the federation; what a run does belongs to the run's own role, and
whether a proposal is welcome to the policy and the operator, whose answers are recorded inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    Input,
    Move,
    Moves,
    OperatorCommand,
    Received,
    Send,
    Started,
    Step,
    dispatch,
)
from parties.pairing import Pairing, Self, begin, proceed
from schemas.config import RunManifest
from schemas.federation import (
    AnswerRun,
    ConfirmMember,
    EndRun,
    MemberHello,
    Pair,
    ProposeRun,
    RemoveMember,
    Roster,
    RunAnswer,
    RunNews,
    RunProposal,
    RunStop,
    SeatMember,
    StopRun,
)
from schemas.ids import COORDINATOR, PartyId, PartyRole, RunId

# asked: the operator or the policy has to answer; proposed: the others have to.
KnownPhase = Literal["asked", "proposed", "open", "refused", "over"]
_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Fellow:
    """Another member: its keys as this party has pinned them."""

    role: PartyRole
    verify_key: bytes
    curve_key: bytes


@dataclass(frozen=True)
class KnownRun:
    """A run as this party knows it."""

    manifest: RunManifest
    phase: KnownPhase
    rows: str | None = None  # this party's own file of rows to score
    waiting_for: tuple[PartyId, ...] = ()
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Belonging:
    """Membership has one phase."""

    fellows: Mapping[PartyId, Fellow] = field(default_factory=lambda: _NONE)
    pairings: Mapping[PartyId, Pairing] = field(default_factory=lambda: _NONE)
    attempts: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)  # pairings begun so far
    runs: Mapping[RunId, KnownRun] = field(default_factory=lambda: _NONE)

    def with_run(self, name: RunId, run: KnownRun) -> Belonging:
        """The same membership with one run changed."""
        return replace(self, runs=MappingProxyType({**self.runs, name: run}))


class Membership:
    """The role of one member."""

    def __init__(self, me: Self) -> None:
        self.me = me
        self.name = me.party

    def initial(self) -> Belonging:
        """Knows nobody yet."""
        return Belonging()

    def step(self, state: Belonging, given: Input) -> Step[Any]:
        """One move of the table below."""
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Belonging) -> dict[str, Any]:
        """What this party's operator may see."""
        return {
            "members": {name: fellow.role for name, fellow in sorted(state.fellows.items())},
            "runs": {name: describe(run) for name, run in state.runs.items()},
        }

    def freeze(self, state: Belonging) -> bytes | None:
        """Folding a federation's journal is quick: it has no snapshot."""
        return None

    def thaw(self, frozen: bytes) -> Belonging | None:
        """See `freeze`."""
        return None

    def started(self, state: Belonging, given: Started) -> Step[Belonging]:
        """Greet the registrar."""
        hello = MemberHello(epoch=given.epoch)
        return state, (Send((COORDINATOR,), hello),)

    def seat(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Pin a member whose keys this party's settings state."""
        asked = _command(given, SeatMember)
        fellow = Fellow(asked.role, asked.verify_key, asked.curve_key)
        return replace(state, fellows=MappingProxyType({**state.fellows, asked.party: fellow})), ()

    # -- getting to know each other -----------------------------------------------------------

    def roster(self, state: Belonging, given: Received[Roster]) -> Step[Belonging]:
        """Begin with members this party does not know; who is gone is known no more."""
        named = {entry.party: entry.role for entry in given.message.members}
        fellows = {p: fellow for p, fellow in state.fellows.items() if p in named}
        pairings = {p: pairing for p, pairing in state.pairings.items() if p in named}
        state = replace(
            state, fellows=MappingProxyType(fellows), pairings=MappingProxyType(pairings)
        )
        effects: tuple[Effect, ...] = ()
        for party in sorted(set(named) - set(fellows) - set(pairings) - {self.name}):
            state, more = self._begin(state, party, named[party])
            effects = (*effects, *more)
        return state, effects

    def _begin(self, state: Belonging, party: PartyId, role: PartyRole) -> Step[Belonging]:
        attempt = state.attempts.get(party, 0)
        pairing, message = begin(self.me, party, Pairing(role, attempt))
        state = replace(
            state,
            pairings=MappingProxyType({**state.pairings, party: pairing}),
            attempts=MappingProxyType({**state.attempts, party: attempt + 1}),
        )
        return state, () if message is None else (Send((COORDINATOR,), message),)

    def pair(self, state: Belonging, given: Received[Pair]) -> Step[Belonging]:
        """The next message of a pairing."""
        message = given.message
        pairing = state.pairings.get(message.peer)
        if pairing is None or message.peer in state.fellows:
            raise PeerError(f"{message.peer} is confirmed, or no member")
        pairing, answer = proceed(self.me, pairing, message)
        pairings = MappingProxyType({**state.pairings, message.peer: pairing})
        effects = () if answer is None else (Send((COORDINATOR,), answer),)
        return replace(state, pairings=pairings), effects

    def confirm(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Two people have compared the words: the keys are pinned."""
        name = _command(given, ConfirmMember).party
        pairing = state.pairings.get(name)
        if pairing is None or not pairing.words:
            raise PeerError(f"there are no words to compare with {name}")
        fellow = Fellow(pairing.role, pairing.verify_key, pairing.curve_key)
        pairings = {p: each for p, each in state.pairings.items() if p != name}
        return replace(
            state,
            fellows=MappingProxyType({**state.fellows, name: fellow}),
            pairings=MappingProxyType(pairings),
        ), ()

    def remove(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Forget a member's keys; the next attempt has other words."""
        name = _command(given, RemoveMember).party
        fellow, pairing = state.fellows.get(name), state.pairings.get(name)
        if fellow is None and pairing is None:
            raise PeerError(f"{name} is not known here")
        role: PartyRole = fellow.role if fellow else pairing.role if pairing else "passive"
        fellows = {p: each for p, each in state.fellows.items() if p != name}
        return self._begin(replace(state, fellows=MappingProxyType(fellows)), name, role)

    # -- proposing ----------------------------------------------------------------------------

    def propose(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Ask the others for a run, as its active party."""
        asked = _command(given, ProposeRun)
        manifest = asked.manifest
        if manifest.run in state.runs:
            raise PeerError(f"run {manifest.run} is known already")
        if manifest.active_party != self.name:
            raise PeerError("only the active party may propose a run")
        run = KnownRun(manifest, "proposed", asked.rows, manifest.passive_parties)
        proposal = RunProposal(manifest=manifest)
        return state.with_run(manifest.run, run), (Send((COORDINATOR,), proposal),)

    # -- being asked --------------------------------------------------------------------------

    def asked(self, state: Belonging, given: Received[RunProposal]) -> Step[Belonging]:
        """A proposal has come: policy or operator must answer."""
        manifest = given.message.manifest
        if manifest.run in state.runs:
            raise PeerError(f"run {manifest.run} is known already")
        if self.name not in manifest.passive_parties:
            raise PeerError("this party is no passive party of the proposed run")
        return state.with_run(manifest.run, KnownRun(manifest, "asked")), ()

    def answer(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Say yes or no, once."""
        said = _command(given, AnswerRun)
        run = state.runs.get(said.run)
        if run is None or run.phase != "asked":
            raise PeerError(f"run {said.run} waits for no answer")
        phase: KnownPhase = "proposed" if said.accepted else "refused"
        run = replace(run, phase=phase, reason=said.reason)
        answer = RunAnswer(run=said.run, accepted=said.accepted, reason=said.reason)
        return state.with_run(said.run, run), (Send((COORDINATOR,), answer),)

    def news(self, state: Belonging, given: Received[RunNews]) -> Step[Belonging]:
        """What the registrar says of a run this party knows."""
        message = given.message
        run = state.runs.get(message.run)
        if run is None:
            raise PeerError("news of a run this party was never asked for")
        if run.phase in ("refused", "over"):
            return state, ()  # this party knows better
        if message.phase == "open" and run.phase != "proposed":
            raise PeerError("a run opens that this party has not agreed to")
        if message.phase == "over":
            raise PeerError("a run's own stream says when it is over")
        run = replace(
            run,
            phase=message.phase,
            waiting_for=message.waiting_for,
            reason=message.reason or run.reason,
        )
        return state.with_run(message.run, run), ()

    # -- ending -------------------------------------------------------------------------------

    def stop(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Have a run ended by the registrar; one that runs here also withdraws by itself."""
        asked = _command(given, StopRun)
        run = state.runs.get(asked.run)
        if run is None or run.phase in ("refused", "over"):
            raise PeerError(f"run {asked.run} is not there to be stopped")
        stop = RunStop(run=asked.run, reason=asked.reason)
        if run.phase == "asked":  # nobody need hear of it twice
            run = replace(run, phase="refused", reason="stopped here")
            return state.with_run(asked.run, run), (Send((COORDINATOR,), stop),)
        return state, (Send((COORDINATOR,), stop),)

    def end(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """The run's own node has come to its end here."""
        ended = _command(given, EndRun)
        run = state.runs.get(ended.run)
        if run is None or run.phase == "over":
            return state, ()
        run = replace(run, phase="over", waiting_for=(), outcome=ended.outcome, reason=ended.reason)
        return state.with_run(ended.run, run), ()


def describe(run: KnownRun) -> dict[str, Any]:
    """A run in a few words."""
    manifest = run.manifest
    return {
        "phase": run.phase,
        "active": manifest.active_party,
        "passive": list(manifest.passive_parties),
        "method": manifest.method.kind,
        "guarantee": manifest.guarantee,
        "epsilon": manifest.budget.epsilon if manifest.budget else None,
        "delta": manifest.budget.delta if manifest.budget else None,
        "waiting_for": list(run.waiting_for),
        "outcome": run.outcome,
        "reason": run.reason,
    }


def _command(given: OperatorCommand, kind: type[Any]) -> Any:
    assert isinstance(given.command, kind)
    return given.command


_M = Membership
MOVES: Moves = {
    (Belonging, "started"): Move(_M.started, ()),
    (Belonging, "command:seat"): Move(_M.seat, ()),
    (Belonging, "command:confirm"): Move(_M.confirm, ()),
    (Belonging, "command:remove"): Move(_M.remove, ()),
    (Belonging, "roster"): Move(_M.roster, ()),
    (Belonging, "pair"): Move(_M.pair, ()),
    (Belonging, "command:propose"): Move(_M.propose, ()),
    (Belonging, "command:answer"): Move(_M.answer, ()),
    (Belonging, "command:stop"): Move(_M.stop, ()),
    (Belonging, "command:end"): Move(_M.end, ()),
    (Belonging, "run_proposal"): Move(_M.asked, ()),
    (Belonging, "run_news"): Move(_M.news, ()),
}
