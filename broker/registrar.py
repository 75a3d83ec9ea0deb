"""The registrar: who belongs to a federation, and which runs its members have agreed on.

It owns a federation's members and the life of a run before and after the run itself; the run is the
coordinator's. It passes proposals on and counts answers: a run opens when all its parties want it.
A pure role: policies, clocks and operators speak through recorded inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    Input,
    Meet,
    Move,
    Moves,
    OperatorCommand,
    Received,
    Send,
    Started,
    Step,
    TimerFired,
    arm,
    dispatch,
)
from schemas.base import in_words
from schemas.config import RunManifest
from schemas.federation import (
    Admit,
    EndRun,
    Invite,
    MemberHello,
    Pair,
    RemoveMember,
    Roster,
    RosterEntry,
    RunAnswer,
    RunNews,
    RunPhase,
    RunProposal,
    RunStop,
    SeatMember,
    StopRun,
)
from schemas.ids import COORDINATOR, PartyId, PartyRole, RunId

GUESSES_MAX = 3  # wrong secrets after which an invitation is burnt
OPEN_RUNS_MAX = 64  # proposed or open at the same time
ANSWER_S = 7 * 86400.0  # how long a proposal waits for answers
_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Seat:
    """A member and its keys."""

    role: PartyRole
    verify_key: bytes
    curve_key: bytes


@dataclass(frozen=True)
class OpenInvitation:
    """Somebody may knock under this name, once."""

    role: PartyRole
    secret_digest: bytes
    expires_s: int
    guesses: int = 0


@dataclass(frozen=True)
class AgreedRun:
    """A run as the federation sees it."""

    manifest: RunManifest
    phase: RunPhase
    accepted: frozenset[PartyId] = frozenset()
    stopped_by: PartyId | None = None  # somebody wants this open run to end
    outcome: str = ""
    reason: str = ""

    @property
    def waiting_for(self) -> tuple[PartyId, ...]:
        """Parties that have not answered."""
        if self.phase != "proposed":
            return ()
        return tuple(p for p in self.manifest.passive_parties if p not in self.accepted)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A federation stands for years: it has one phase."""

    epochs: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)
    members: Mapping[PartyId, Seat] = field(default_factory=lambda: _NONE)
    invitations: Mapping[PartyId, OpenInvitation] = field(default_factory=lambda: _NONE)
    runs: Mapping[RunId, AgreedRun] = field(default_factory=lambda: _NONE)

    def with_run(self, name: RunId, run: AgreedRun) -> Standing:
        """The same federation with one run changed."""
        return replace(self, runs=MappingProxyType({**self.runs, name: run}))


class Registrar:
    """The role; everything else is in its journal."""

    name: PartyId = COORDINATOR

    def initial(self) -> Standing:
        """Nobody belongs to it yet."""
        return Standing()

    def step(self, state: Standing, given: Input) -> Step[Any]:
        """One move of the table below."""
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Standing) -> dict[str, Any]:
        """What the broker's operator may see: all of it is known to the members."""
        return {
            "members": {name: seat.role for name, seat in sorted(state.members.items())},
            "runs": {name: describe(run) for name, run in state.runs.items()},
        }

    def freeze(self, state: Standing) -> bytes | None:
        """Folding a federation's journal is quick: it has no snapshot."""
        return None

    def thaw(self, frozen: bytes) -> Standing | None:
        """See `freeze`."""
        return None

    # -- members ------------------------------------------------------------------------------

    def started(self, state: Standing, given: Started) -> Step[Standing]:
        return state, ()

    def seat(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """A member whose keys the broker's settings state."""
        asked = _command(given, SeatMember)
        seat = Seat(asked.role, asked.verify_key, asked.curve_key)
        members = MappingProxyType({**state.members, asked.party: seat})
        return replace(state, members=members), (_meet(asked.party, seat),)

    def hello(self, state: Standing, given: Received[MemberHello]) -> Step[Standing]:
        epochs = MappingProxyType({**state.epochs, given.sender: given.message.epoch})
        return replace(state, epochs=epochs), (_roster(state, (given.sender,)),)

    def invite(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """Open the lobby for one newcomer; a second invitation replaces the first."""
        asked = _command(given, Invite)
        if asked.party in state.members or asked.party == COORDINATOR:
            raise PeerError(f"{asked.party} belongs to the federation already")
        opened = OpenInvitation(asked.role, asked.secret_digest, asked.expires_s)
        return _with_invitation(state, asked.party, opened), ()

    def admit(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """A guest knocks: it belongs to the federation, or its guess counts against the line."""
        guest = _command(given, Admit)
        fault = knock_fault(state, guest)
        opened = state.invitations.get(guest.party)
        if opened is None:
            raise PeerError(str(fault))
        if fault is not None:
            burnt = opened.guesses + 1 >= GUESSES_MAX
            counted = None if burnt else replace(opened, guesses=opened.guesses + 1)
            return _with_invitation(state, guest.party, counted), ()
        state = _with_invitation(state, guest.party, None)
        seat = Seat(opened.role, guest.verify_key, guest.curve_key)
        members = MappingProxyType({**state.members, guest.party: seat})
        state = replace(state, members=members)
        return state, (_meet(guest.party, seat), _roster(state, tuple(sorted(members))))

    def remove(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """A member goes; the others hear of it, and its connection is not admitted again."""
        name = _command(given, RemoveMember).party
        if name not in state.members:
            raise PeerError(f"{name} is no member")
        members = {party: seat for party, seat in state.members.items() if party != name}
        state = replace(state, members=MappingProxyType(members))
        return state, (_roster(state, tuple(sorted(members))),) if members else ()

    def pair(self, state: Standing, given: Received[Pair]) -> Step[Standing]:
        """Pass a message between two members on, under its sender's name."""
        message = given.message
        if message.peer not in state.members or message.peer == given.sender:
            raise PeerError(f"{message.peer} is no other member")
        passed = Pair(
            peer=given.sender,
            stage=message.stage,
            value=message.value,
            verify_key=message.verify_key,
            curve_key=message.curve_key,
        )
        return state, (Send((message.peer,), passed),)

    # -- runs ---------------------------------------------------------------------------------

    def propose(self, state: Standing, given: Received[RunProposal]) -> Step[Standing]:
        """Pass a proposal on, or tell the proposer why not."""
        manifest = given.message.manifest
        if manifest.run in state.runs:
            raise PeerError(f"run {manifest.run} is known already")
        wrong = _unfit(state, manifest, given.sender)
        if wrong is not None:
            run = AgreedRun(manifest, "refused", reason=wrong)
            return state.with_run(manifest.run, run), (_news((given.sender,), run),)
        run = AgreedRun(manifest, "proposed")
        return state.with_run(manifest.run, run), (
            Send(manifest.passive_parties, RunProposal(manifest=manifest)),
            _news((given.sender,), run),
            arm(f"proposal:{manifest.run}", ANSWER_S),
        )

    def answer(self, state: Standing, given: Received[RunAnswer]) -> Step[Standing]:
        """Count an answer; the last one opens the run."""
        message = given.message
        run = _run_of(state, message.run, given.sender)
        if run.phase != "proposed" or given.sender in run.accepted:
            return state, ()  # refused or stopped in the meantime
        if not message.accepted:
            return self._refuse(state, run, f"{given.sender}: {message.reason}")
        run = replace(run, accepted=run.accepted | {given.sender})
        if run.waiting_for:
            return state.with_run(message.run, run), (_news((run.manifest.active_party,), run),)
        run = replace(run, phase="open")
        return state.with_run(message.run, run), (_news(run.manifest.parties, run),)

    def _refuse(self, state: Standing, run: AgreedRun, reason: str) -> Step[Standing]:
        run = replace(run, phase="refused", reason=in_words(reason))
        return state.with_run(run.manifest.run, run), (_news(run.manifest.parties, run),)

    def stop(self, state: Standing, given: Received[RunStop]) -> Step[Standing]:
        """A party ends a proposal, or wants the coordinator of an open run to close it."""
        run = _run_of(state, given.message.run, given.sender)
        why = "its operator stopped it" if given.message.reason == "operator" else _UNFIT
        return self._stop(state, run, given.sender, f"{given.sender}: {why}")

    def stop_here(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The broker's operator ends a run."""
        run = state.runs.get(_command(given, StopRun).run)
        if run is None:
            raise PeerError("there is no such run")
        return self._stop(state, run, COORDINATOR, "the broker's operator stopped it")

    def _stop(self, state: Standing, run: AgreedRun, party: PartyId, reason: str) -> Step[Standing]:
        if run.phase == "proposed":
            return self._refuse(state, run, reason)
        if run.phase == "open" and run.stopped_by is None:
            run = replace(run, stopped_by=party, reason=in_words(reason))
            return state.with_run(run.manifest.run, run), ()
        return state, ()

    def late(self, state: Standing, given: TimerFired) -> Step[Standing]:
        """A proposal has waited long enough."""
        run = state.runs.get(given.timer.split(":", maxsplit=1)[1])
        if run is None or run.phase != "proposed":
            return state, ()
        missing = ", ".join(run.waiting_for)
        return self._refuse(state, run, f"no answer of {missing} within {ANSWER_S / 86400:g} days")

    def end(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The run's coordinator has closed it and every party has heard so."""
        ended = _command(given, EndRun)
        run = state.runs.get(ended.run)
        if run is None or run.phase != "open":
            return state, ()
        run = replace(run, phase="over", outcome=ended.outcome, reason=ended.reason)
        return state.with_run(ended.run, run), ()


def knock_fault(state: Standing, guest: Admit) -> str | None:
    """Why a guest is not let in."""
    opened = state.invitations.get(guest.party)
    if opened is None:
        return "no invitation is open for this name: it was used, or burnt; ask for a new one"
    if guest.at_s > opened.expires_s:
        return "the invitation has expired: ask for a new one"
    if hashlib.sha256(guest.secret).digest() != opened.secret_digest:
        return "the invitation's secret is wrong: ask for a new one"
    return None


def _with_invitation(state: Standing, party: PartyId, opened: OpenInvitation | None) -> Standing:
    others = {name: each for name, each in state.invitations.items() if name != party}
    if opened is not None:
        others[party] = opened
    return replace(state, invitations=MappingProxyType(others))


def _roster(state: Standing, to: tuple[PartyId, ...]) -> Send:
    members = tuple(
        RosterEntry(party=party, role=seat.role) for party, seat in sorted(state.members.items())
    )
    return Send(to, Roster(members=members))


_UNFIT = "its data or settings do not allow the run"


def describe(run: AgreedRun) -> dict[str, Any]:
    """A run in a few words."""
    return {
        "phase": run.phase,
        "active": run.manifest.active_party,
        "passive": list(run.manifest.passive_parties),
        "waiting_for": list(run.waiting_for),
        "outcome": run.outcome,
        "reason": run.reason,
    }


def _unfit(state: Standing, manifest: RunManifest, sender: PartyId) -> str | None:
    """Why the federation does not take a proposal up."""
    if manifest.active_party != sender:
        return "only the active party may propose a run"
    strangers = [p for p in manifest.parties if p not in state.members]
    if strangers:
        return f"{', '.join(strangers)} do not belong to this federation; see 'hdpvfl status'"
    wrong = [p for p in manifest.passive_parties if state.members[p].role != "passive"]
    if wrong:
        return f"{', '.join(wrong)} joined as active; a run has one active party"
    busy = [run for run in state.runs.values() if run.phase in ("proposed", "open")]
    if len(busy) >= OPEN_RUNS_MAX:
        return f"{len(busy)} runs are proposed or open; stop one ('hdpvfl stop RUN'), try again"
    return None


def _run_of(state: Standing, name: RunId, sender: PartyId) -> AgreedRun:
    run = state.runs.get(name)
    if run is None or sender not in run.manifest.parties:
        raise PeerError(f"{sender} has no part in run {name}")
    return run


def _news(to: tuple[PartyId, ...], run: AgreedRun) -> Effect:
    news = RunNews(
        run=run.manifest.run, phase=run.phase, waiting_for=run.waiting_for, reason=run.reason
    )
    return Send(to, news)


def _meet(party: PartyId, seat: Seat) -> Meet:
    return Meet(party=party, role=seat.role, verify_key=seat.verify_key)


def _command(given: OperatorCommand, kind: type[Any]) -> Any:
    assert isinstance(given.command, kind)
    return given.command


_R = Registrar
MOVES: Moves = {
    (Standing, "started"): Move(_R.started, ()),
    (Standing, "command:seat"): Move(_R.seat, ()),
    (Standing, "command:invite"): Move(_R.invite, ()),
    (Standing, "command:admit"): Move(_R.admit, ()),
    (Standing, "command:remove"): Move(_R.remove, ()),
    (Standing, "pair"): Move(_R.pair, ()),
    (Standing, "member_hello"): Move(_R.hello, ()),
    (Standing, "run_proposal"): Move(_R.propose, ()),
    (Standing, "run_answer"): Move(_R.answer, ()),
    (Standing, "run_stop"): Move(_R.stop, ()),
    (Standing, "timer:proposal"): Move(_R.late, ()),
    (Standing, "command:stop"): Move(_R.stop_here, ()),
    (Standing, "command:end"): Move(_R.end, ()),
}
