"""Invitations at the registrar: used once, burnt by guesses, closed by time."""

from __future__ import annotations

import hashlib

import pytest

from broker.registrar import GUESSES_MAX, Registrar
from broker.standing import Seat, knock_fault
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import OperatorCommand
from schemas.commands import Admit, Invite, RemoveMember, SeatMember

SECRET, OTHER = bytes(16), bytes([1]) * 16
END_S = 1000


def invited(state=None):
    role = Registrar()
    digest = hashlib.sha256(SECRET).digest()
    asked = Invite(party="shop", role="passive", secret_digest=digest, expires_s=END_S)
    state, _ = role.step(state or role.initial(), OperatorCommand(command=asked))
    return role, state


def guest(secret: bytes = SECRET, at_s: int = END_S) -> Admit:
    keys = {"verify_key": bytes([2]) * 32, "curve_key": bytes([3]) * 32}
    return Admit(party="shop", secret=secret, at_s=at_s, **keys)


def knock(role, state, who: Admit):
    state, _ = role.step(state, OperatorCommand(command=who))
    return state


def test_the_secret_admits_one_guest_once():
    role, state = invited()
    state = knock(role, state, guest())
    assert set(state.members) == {"shop"}
    assert not state.invitations
    with pytest.raises(PeerError, match="it was used, or burnt"):
        knock(role, state, guest())


def test_an_invitation_ends():
    role, state = invited()
    late = guest(at_s=END_S + 1)
    assert "has expired" in str(knock_fault(state, late))
    state = knock(role, state, late)
    assert not state.members


def test_guesses_burn_an_invitation():
    role, state = invited()
    for number in range(GUESSES_MAX):
        assert "secret is wrong" in str(knock_fault(state, guest(OTHER)))
        state = knock(role, state, guest(OTHER))
        assert bool(state.invitations) == (number + 1 < GUESSES_MAX)
    assert not state.members
    with pytest.raises(PeerError, match="burnt"):
        knock(role, state, guest())


def test_settings_do_not_put_a_removed_member_in_the_place_of_its_successor():
    """Bug: at the next start of the broker, the removed member had its name again."""
    role, key = Registrar(), bytes([7]) * 32
    listed = SeatMember(party="shop", role="passive", verify_key=key, curve_key=key)
    state = role.initial()
    for said in (listed, RemoveMember(party="shop")):
        state, _ = role.step(state, OperatorCommand(command=said))
    role, state = invited(state)
    state = knock(role, state, guest())
    assert state.members["shop"].verify_key == guest().verify_key
    assert state.has_heard_of("shop", Seat("passive", key, key))
