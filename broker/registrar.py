"""The registrar: who belongs to a federation, and with which keys.

It owns a federation's members; agreed_runs.py owns the moves that concern runs. A pure role:
policies, clocks and operators arrive as recorded inputs.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from broker.agreed_runs import AgreedRuns
from broker.standing import OpenInvitation, Seat, Standing, describe, knock_fault
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    Forget,
    Input,
    Meet,
    Move,
    Moves,
    NoSnapshot,
    OperatorCommand,
    Received,
    Send,
    Started,
    Step,
    command_of,
    dispatch,
)
from hdpvfl_mq.wire.key_change import next_keys
from schemas.commands import Admit, Invite, RemoveMember, SeatMember
from schemas.federation import KeyChanged, MemberHello, Pair, Roster, RosterEntry, SignedRoster
from schemas.ids import COORDINATOR, OLDEST_VERSION, PartyId

PAIRS_MAX = 1000  # messages from one member to another; an attempt takes two
ROSTERS_MAX = 10_000  # signed lists of one member; it signs one for each change of a key
LEFT_MAX = 16  # members in a list who may have left since
GUESSES_MAX = 3  # wrong secrets after which an invitation is void


class Registrar(AgreedRuns, NoSnapshot):
    """The registrar's role; all its state comes from its journal."""

    name: PartyId = COORDINATOR

    def initial(self) -> Standing:
        """A federation without members."""
        return Standing()

    def step(self, state: Standing, given: Input) -> Step[Any]:
        """Apply one move of the table below."""
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Standing) -> dict[str, Any]:
        """What the broker's operator may see; the members know all of it."""
        return {
            "members": {name: seat.role for name, seat in sorted(state.members.items())},
            "runs": {name: describe(run) for name, run in state.runs.items()},
        }

    def started(self, state: Standing, given: Started) -> Step[Standing]:
        return replace(state, version=given.speaks), ()

    def seat(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """Add a member whose keys are in the broker's settings."""
        asked = command_of(given, SeatMember)
        seat = Seat(asked.role, asked.verify_key, asked.curve_key)
        return state.with_member(asked.party, seat), (_meet(asked.party, seat),)

    def hello(self, state: Standing, given: Received[MemberHello]) -> Step[Standing]:
        sender, message = given.sender, given.message
        state = replace(state, epochs=MappingProxyType({**state.epochs, sender: message.epoch}))
        state, met = _version(state, sender, message.speaks)
        rosters = (Send((sender,), signed) for signed in _rosters(state, sender))
        return state, (*met, _roster(state, (sender,)), *rosters)

    def invite(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """Invite one new member; a second invitation for the same name replaces the first."""
        asked = command_of(given, Invite)
        if asked.party in state.members or asked.party == COORDINATOR:
            raise PeerError(f"{asked.party} belongs to the federation already")
        opened = OpenInvitation(asked.role, asked.secret_digest, asked.expires_s)
        return state.with_invitation(asked.party, opened), ()

    def admit(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """A guest knocks: make it a member, or count its wrong secret against the invitation."""
        guest = command_of(given, Admit)
        fault = knock_fault(state, guest)
        opened = state.invitations.get(guest.party)
        if opened is None:
            raise PeerError(str(fault))
        if fault is not None:
            burnt = opened.guesses + 1 >= GUESSES_MAX
            counted = None if burnt else replace(opened, guesses=opened.guesses + 1)
            return state.with_invitation(guest.party, counted), ()
        state = state.with_invitation(guest.party, None)
        forgotten: tuple[Effect, ...] = ()
        if state.past.get(guest.party, guest.verify_key) != guest.verify_key:
            state, forgotten = state.with_name_reused(guest.party), (Forget(party=guest.party),)
        seat = Seat(opened.role, guest.verify_key, guest.curve_key)
        state = state.with_member(guest.party, seat)
        roster = _roster(state, tuple(sorted(state.members)))
        return state, (*forgotten, _meet(guest.party, seat), roster)

    def remove(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """Remove a member, tell the others, and do not admit its connection again."""
        name = command_of(given, RemoveMember).party
        if name not in state.members:
            raise PeerError(f"{name} is not a member")
        state = state.without_member(name)
        left = tuple(sorted(state.members))
        return state, (_roster(state, left),) if left else ()

    def pair(self, state: Standing, given: Received[Pair]) -> Step[Standing]:
        """Forward a message between two members, with its sender's name."""
        message = given.message
        if message.peer not in state.members or message.peer == given.sender:
            raise PeerError(f"{message.peer} is not another member")
        state = state.having_forwarded(given.sender, message.peer, "pair", most=PAIRS_MAX)
        passed = Pair(
            peer=given.sender,
            stage=message.stage,
            value=message.value,
            verify_key=message.verify_key,
            curve_key=message.curve_key,
        )
        return state, (Send((message.peer,), passed),)

    def signed_roster(self, state: Standing, given: Received[SignedRoster]) -> Step[Standing]:
        """Forward the signed list of keys that a member has pinned."""
        signed = given.message
        if signed.signer != given.sender:
            raise PeerError("a roster that somebody else has signed")
        state = state.having_forwarded(given.sender, given.sender, signed.kind, most=ROSTERS_MAX)
        if len(signed.members) > len(state.members) + LEFT_MAX:
            raise PeerError("a roster of more members than the federation has")
        state = replace(state, rosters=MappingProxyType({**state.rosters, given.sender: signed}))
        others = tuple(p for p in sorted(state.members) if p != given.sender)
        return state, (Send(others, signed),) if others else ()

    def key_changed(self, state: Standing, given: Received[KeyChanged]) -> Step[Standing]:
        """Take a member's new keys, signed by its old one, and forward the change to the others."""
        change = given.message.change
        seat = state.members.get(given.sender)
        if seat is None:
            raise PeerError(f"{given.sender} is not a member")
        former = state.former.get(given.sender, ())
        keys = next_keys(change, given.sender, seat.verify_key, former)
        others = tuple(p for p in sorted(state.members) if p != given.sender)
        if any(
            set(keys) & {state.members[p].verify_key, state.members[p].curve_key} for p in others
        ):
            raise PeerError("a key that another member has")
        state = state.with_member(given.sender, Seat(seat.role, *keys))
        changed = {**state.former, given.sender: (*former, seat.verify_key)}
        state = replace(state, former=MappingProxyType(changed))
        told = (Send(others, given.message),) if others else ()
        met = _meet(given.sender, state.members[given.sender], state.version_of(given.sender))
        return state, (met, *told)


def _roster(state: Standing, to: tuple[PartyId, ...]) -> Send:
    members = tuple(
        RosterEntry(party=party, role=seat.role) for party, seat in sorted(state.members.items())
    )
    return Send(to, Roster(members=members))


def _rosters(state: Standing, to: PartyId) -> tuple[SignedRoster, ...]:
    return tuple(signed for party, signed in sorted(state.rosters.items()) if party != to)


def _version(state: Standing, party: PartyId, speaks: int) -> Step[Standing]:
    """Note the newest version that a member speaks, and write to it in this one."""
    if speaks == state.version_of(party) or party not in state.members:
        return state, ()
    state = replace(state, speaks=MappingProxyType({**state.speaks, party: speaks}))
    return state, (_meet(party, state.members[party], speaks),)


def _meet(party: PartyId, seat: Seat, speaks: int = OLDEST_VERSION) -> Meet:
    return Meet(party=party, role=seat.role, verify_key=seat.verify_key, speaks=speaks)


_R = Registrar
MOVES: Moves = {
    (Standing, "started"): Move(_R.started, ()),
    (Standing, "command:seat"): Move(_R.seat, ()),
    (Standing, "command:invite"): Move(_R.invite, ()),
    (Standing, "command:admit"): Move(_R.admit, ()),
    (Standing, "command:remove"): Move(_R.remove, ()),
    (Standing, "signed_roster"): Move(_R.signed_roster, ()),
    (Standing, "pair"): Move(_R.pair, ()),
    (Standing, "key_changed"): Move(_R.key_changed, ()),
    (Standing, "member_hello"): Move(_R.hello, ()),
    (Standing, "run_proposal"): Move(_R.propose, ()),
    (Standing, "run_answer"): Move(_R.hear, ()),
    (Standing, "run_stop"): Move(_R.hear, ()),
    (Standing, "timer:proposal"): Move(_R.late, ()),
    (Standing, "command:stop"): Move(_R.stop_here, ()),
    (Standing, "command:end"): Move(_R.report, ()),
    (Standing, "command:close"): Move(_R.report, ()),
    (Standing, "command:cannot_open"): Move(_R.report, ()),
}
