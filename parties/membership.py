"""A party's side of a federation: the members it knows, their keys and its own.

It owns how members get to know, replace and forget each other's keys; proposals.py owns the moves
that concern runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from nacl.signing import SigningKey

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    Input,
    Move,
    Moves,
    NoSnapshot,
    OperatorCommand,
    Received,
    Send,
    SignWith,
    Started,
    Step,
    command_of,
    dispatch,
)
from hdpvfl_mq.wire.key_change import next_keys
from parties.belonging import Belonging, OwnKeys, describe
from parties.pairing import LAST_STAGE, Pairing, Self, begin, proceed
from parties.proposals import Proposals
from parties.refusals import refusals
from parties.roster import Dispute, Fellow, disputes, sign_roster, signers
from schemas.commands import ConfirmMember, RemoveMember, ReplaceKeys, SeatMember
from schemas.federation import KeyChanged, MemberHello, Pair, Roster, SignedRoster
from schemas.ids import COORDINATOR, PartyId, PartyRole

ATTEMPTS_MAX = 256  # pairings with one member that no operator has asked for
_NONE: Mapping[bytes, SigningKey] = MappingProxyType({})


class Membership(Proposals, NoSnapshot):
    """The role of one member."""

    def __init__(
        self, me: Self, signing_key: SigningKey, later_keys: Mapping[bytes, SigningKey] = _NONE
    ) -> None:
        """`me` and `signing_key` are the first keys; `later_keys` replaced them, by public key."""
        self._first = me
        self._signing_keys = {me.verify_key: signing_key, **later_keys}
        self.name = me.party

    def learn(self, later_keys: Mapping[bytes, SigningKey]) -> None:
        """Add signing keys that a later command may switch to."""
        self._signing_keys |= later_keys

    def me(self, state: Belonging) -> Self:
        """This member with the keys it has now."""
        keys = state.keys
        if keys is None:
            return self._first
        return replace(self._first, verify_key=keys.verify_key, curve_key=keys.curve_key)

    def initial(self) -> Belonging:
        """A member that knows nobody yet."""
        return Belonging()

    def step(self, state: Belonging, given: Input) -> Step[Any]:
        """Apply one move of the table below."""
        return dispatch(MOVES, self, state, given)

    def progress(self, state: Belonging) -> dict[str, Any]:
        """What this party's operator may see."""
        return {
            "members": {name: fellow.role for name, fellow in sorted(state.fellows.items())},
            "runs": {name: describe(run) for name, run in state.runs.items()},
            "refusals": {
                name: refusals(state.runs.values(), name)
                for name, fellow in sorted(state.fellows.items())
                if fellow.role == "active"
            },
        }

    def started(self, state: Belonging, given: Started) -> Step[Belonging]:
        """Greet the registrar."""
        state = replace(state, epoch=given.epoch, version=given.speaks)
        return state, (Send((COORDINATOR,), _hello(state)),)

    def seat(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Pin a member whose keys are in this party's settings; other members are not told."""
        asked = command_of(given, SeatMember)
        fellow = Fellow(asked.role, asked.verify_key, asked.curve_key)
        return replace(state, fellows=MappingProxyType({**state.fellows, asked.party: fellow})), ()

    # -- getting to know each other -----------------------------------------------------------

    def roster(self, state: Belonging, given: Received[Roster]) -> Step[Belonging]:
        """Start pairing with members that are new to this party; forget those who have left."""
        named = {entry.party: entry.role for entry in given.message.members}
        fellows = {p: fellow for p, fellow in state.fellows.items() if p in named}
        pairings = {p: pairing for p, pairing in state.pairings.items() if p in named}
        rosters = {p: signed for p, signed in state.rosters.items() if p in named}
        has_left = len(fellows) < len(state.fellows)
        state = replace(
            state, pairings=MappingProxyType(pairings), rosters=MappingProxyType(rosters)
        )
        effects: tuple[Effect, ...] = ()
        if has_left:
            state, effects = self._pin(state, fellows)
        for party in sorted(set(named) - set(fellows) - set(pairings) - {self.name}):
            state, more = self._begin(state, party, named[party])
            effects = (*effects, *more)
        return state, effects

    def _begin(
        self, state: Belonging, party: PartyId, role: PartyRole, *, is_asked: bool = False
    ) -> Step[Belonging]:
        """Begin another attempt, with other words; the registrar can cause only so many.

        Each attempt is one more chance that both sides happen to show the same words to a
        registrar in between. Above the limit an operator must ask for the next one.
        """
        attempt = state.attempts.get(party, 0)
        if attempt >= ATTEMPTS_MAX and not is_asked:
            waiting = {**state.pairings, party: Pairing(role, attempt, stage=LAST_STAGE)}
            return replace(state, pairings=MappingProxyType(waiting)), ()
        pairing, message = begin(self.me(state), party, Pairing(role, attempt))
        state = replace(
            state,
            pairings=MappingProxyType({**state.pairings, party: pairing}),
            attempts=MappingProxyType({**state.attempts, party: attempt + 1}),
        )
        return state, () if message is None else (Send((COORDINATOR,), message),)

    def pair(self, state: Belonging, given: Received[Pair]) -> Step[Belonging]:
        """Handle the next message of a pairing."""
        message = given.message
        pairing = state.pairings.get(message.peer)
        if pairing is None or message.peer in state.fellows:
            raise PeerError(f"{message.peer} is already confirmed, or is not a member")
        pairing, answer = proceed(self.me(state), pairing, message)
        pairings = MappingProxyType({**state.pairings, message.peer: pairing})
        effects = () if answer is None else (Send((COORDINATOR,), answer),)
        return replace(state, pairings=pairings), effects

    def confirm(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Two people have compared the words: pin the keys."""
        name = command_of(given, ConfirmMember).party
        pairing = state.pairings.get(name)
        if pairing is None or not pairing.words:
            raise PeerError(f"there are no words to compare with {name}")
        fellow = Fellow(pairing.role, pairing.verify_key, pairing.curve_key)
        pairings = {p: each for p, each in state.pairings.items() if p != name}
        state = replace(state, pairings=MappingProxyType(pairings))
        return self._pin(state, {**state.fellows, name: fellow})

    def _pin(self, state: Belonging, fellows: Mapping[PartyId, Fellow]) -> Step[Belonging]:
        """Pin these members and send the others a signed list of them."""
        edition = state.edition + 1
        state = replace(state, fellows=MappingProxyType(dict(fellows)), edition=edition)
        me = self.me(state)
        signed = sign_roster(me, self._signing_keys[me.verify_key], fellows, edition)
        return state, (Send((COORDINATOR,), signed),)

    def signed_roster(self, state: Belonging, given: Received[SignedRoster]) -> Step[Belonging]:
        """Keep the list of keys another member has pinned; it is verified once its key is known."""
        signed = given.message
        if signed.signer not in {*state.fellows, *state.pairings}:
            raise PeerError("a roster signed by somebody who is not another member")
        kept = state.rosters.get(signed.signer)
        if kept is not None and kept.edition >= signed.edition:
            return state, ()  # an earlier edition, delivered late
        rosters = {**state.rosters, signed.signer: signed}
        return replace(state, rosters=MappingProxyType(rosters)), ()

    def disputes(self, state: Belonging) -> tuple[Dispute, ...]:
        """Members for whom another member has pinned other keys."""
        return disputes(self.me(state), state.fellows, state.rosters, state.former)

    def signers(self, state: Belonging, party: PartyId) -> tuple[PartyId, ...]:
        """Members that have signed the keys that this party has pinned."""
        return signers(self.me(state), state.fellows, state.rosters, party)

    def remove(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Forget a member's keys and pair again; the new attempt has other words."""
        name = command_of(given, RemoveMember).party
        fellow, pairing = state.fellows.get(name), state.pairings.get(name)
        if fellow is None and pairing is None:
            raise PeerError(f"{name} is not known here")
        role: PartyRole = fellow.role if fellow else pairing.role if pairing else "passive"
        fellows = {p: each for p, each in state.fellows.items() if p != name}
        if fellow is not None:
            keys = (*state.removed.get(name, ()), fellow.verify_key)
            state = replace(state, removed=MappingProxyType({**state.removed, name: keys}))
        state, told = self._pin(state, fellows)
        state, effects = self._begin(state, name, role, is_asked=True)
        return state, (*told, *effects)

    # -- new keys -----------------------------------------------------------------------------

    def replace_keys(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Tell the others this party's new keys, under the old key; then sign with the new one.

        The hello is repeated because it is sent first on every connection, and a connection with
        the new key needs one that the new key has signed.
        """
        change = command_of(given, ReplaceKeys).change
        old = self.me(state).verify_key
        verify_key, curve_key = next_keys(change, self.name, old, state.former.get(self.name, ()))
        state = replace(_without(state, self.name, old), keys=OwnKeys(verify_key, curve_key))
        told: tuple[Effect, ...] = (
            Send((COORDINATOR,), KeyChanged(change=change)),
            SignWith(verify_key=verify_key),
            Send((COORDINATOR,), _hello(state)),
        )
        state, signed = self._pin(state, state.fellows)
        state, paired = self._pair_again(state, *sorted(state.pairings))
        return state, (*told, *signed, *paired)

    def key_changed(self, state: Belonging, given: Received[KeyChanged]) -> Step[Belonging]:
        """Pin a member's new keys if the pinned key has signed them."""
        change = given.message.change
        party = change.party
        if party in state.pairings:  # nothing is pinned yet: compare words of the new keys
            return self._pair_again(state, party)
        fellow = state.fellows.get(party)
        if fellow is None:
            raise PeerError("new keys of somebody who is not another member")
        former = state.former.get(party, ())
        verify_key, curve_key = next_keys(change, party, fellow.verify_key, former)
        state = _without(state, party, fellow.verify_key)
        return self._pin(
            state, {**state.fellows, party: Fellow(fellow.role, verify_key, curve_key)}
        )

    def _pair_again(self, state: Belonging, *parties: PartyId) -> Step[Belonging]:
        effects: tuple[Effect, ...] = ()
        for party in parties:
            state, more = self._begin(state, party, state.pairings[party].role)
            effects = (*effects, *more)
        return state, effects


def _hello(state: Belonging) -> MemberHello:
    return MemberHello(epoch=state.epoch, speaks=state.version)


def _without(state: Belonging, party: PartyId, key: bytes) -> Belonging:
    """The same membership in which a party's key has been replaced."""
    former = {**state.former, party: (*state.former.get(party, ()), key)}
    return replace(state, former=MappingProxyType(former))


_M = Membership
MOVES: Moves = {
    (Belonging, "started"): Move(_M.started, ()),
    (Belonging, "command:seat"): Move(_M.seat, ()),
    (Belonging, "command:confirm"): Move(_M.confirm, ()),
    (Belonging, "command:remove"): Move(_M.remove, ()),
    (Belonging, "roster"): Move(_M.roster, ()),
    (Belonging, "signed_roster"): Move(_M.signed_roster, ()),
    (Belonging, "pair"): Move(_M.pair, ()),
    (Belonging, "command:replace_keys"): Move(_M.replace_keys, ()),
    (Belonging, "key_changed"): Move(_M.key_changed, ()),
    (Belonging, "command:propose"): Move(_M.propose, ()),
    (Belonging, "command:answer"): Move(_M.answer, ()),
    (Belonging, "command:stop"): Move(_M.stop, ()),
    (Belonging, "command:end"): Move(_M.end, ()),
    (Belonging, "run_proposal"): Move(_M.asked, ()),
    (Belonging, "run_news"): Move(_M.news, ()),
}
