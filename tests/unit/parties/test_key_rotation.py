"""A member replaces its keys inside a federation: who believes it, and who does not."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from broker.registrar import Registrar
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Meet, OperatorCommand, Received, Send, SignWith, Started
from hdpvfl_mq.node.node import NO_LEDGER
from hdpvfl_mq.wire.key_change import key_change
from schemas.commands import ReplaceKeys, SeatMember
from schemas.federation import KeyChanged, MemberHello, SignedRoster
from tests.unit.parties.test_roster import ROLES, Member, acquainted, deliver, roster, three

NEW, NEWER = SigningKey(bytes([77]) * 32), SigningKey(bytes([78]) * 32)
CURVE = bytes([79]) * 32


def change_of(member: Member, new: SigningKey = NEW, former: SigningKey | None = None, **fields):
    made = key_change(member.name, former or member.key, new, CURVE)
    return type(made)(**{**dict(made), **fields})


def rotate(member: Member, new: SigningKey = NEW, former: SigningKey | None = None) -> list:
    member.role.learn({bytes(new.verify_key): new})
    change = change_of(member, new, former)
    member.state, effects = member.role.step(
        member.state, OperatorCommand(command=ReplaceKeys(change=change))
    )
    member.sent += [effect.message for effect in effects if isinstance(effect, Send)]
    return list(effects)


def test_all_members_pin_the_new_key_and_nobody_disputes():
    bank, shop, telco = three()
    effects = rotate(shop)
    kinds = [e.message.kind if isinstance(e, Send) else e.kind for e in effects]
    # The old key signs the change, the new key everything after it, a hello first.
    assert kinds == ["key_changed", "sign_with", "member_hello", "signed_roster"]
    assert effects[1] == SignWith(verify_key=bytes(NEW.verify_key))
    shop.sent = [m for m in shop.sent if not isinstance(m, MemberHello)]
    deliver(bank, shop, telco)
    for member in (bank, telco):
        assert member.state.fellows["shop"].verify_key == bytes(NEW.verify_key)
        assert member.state.fellows["shop"].curve_key == CURVE
    for member in (bank, shop, telco):
        assert member.role.disputes(member.state) == ()
    assert bank.role.signers(bank.state, "shop") == ("telco",)
    assert shop.role.signers(shop.state, "bank") == ("telco",)


def test_a_member_that_has_not_heard_yet_is_no_liar():
    bank, shop, telco = three()
    rotate(shop)
    bank.hear(KeyChanged(change=change_of(shop)))
    assert telco.state.fellows["shop"].verify_key == bytes(shop.key.verify_key)
    assert bank.role.disputes(bank.state) == ()  # telco's list still has the key of before
    signed = [m for m in bank.sent if isinstance(m, SignedRoster)][-1]
    telco.hear(KeyChanged(change=change_of(shop)))
    telco.hear(signed)
    assert telco.role.disputes(telco.state) == ()


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        pytest.param(lambda shop: change_of(shop, former=NEWER), "does not lead on", id="stranger"),
        pytest.param(
            lambda shop: change_of(shop, signature="00" * 64), "does not verify", id="new key"
        ),
        pytest.param(
            lambda shop: change_of(shop, former_signature="00" * 64), "does not verify", id="broker"
        ),
        pytest.param(
            lambda shop: change_of(shop, verify_key=bytes(NEWER.verify_key).hex()),
            "does not verify",
            id="another new key",
        ),
        pytest.param(
            lambda shop: change_of(shop, curve_key="11" * 32), "does not verify", id="curve key"
        ),
        pytest.param(lambda shop: change_of(shop, party="bank"), "does not lead on", id="other"),
    ],
)
def test_a_change_that_the_pinned_key_has_not_signed_changes_nothing(forged, said):
    """A broker can forward or withhold a change; it cannot make one."""
    _, shop, telco = three()
    before = telco.state
    with pytest.raises(PeerError, match=said):
        telco.hear(KeyChanged(change=forged(shop)))
    assert telco.state is before
    with pytest.raises(PeerError, match="not another member"):
        telco.hear(KeyChanged(change=change_of(Member("mallory", 40))))


def test_an_earlier_change_sent_again_does_not_come_back():
    bank, shop, _ = three()
    first = KeyChanged(change=change_of(shop))
    second = KeyChanged(change=change_of(shop, NEWER, NEW))
    bank.hear(first)
    with pytest.raises(PeerError, match="does not lead on"):
        bank.hear(first)
    bank.hear(second)
    with pytest.raises(PeerError, match="does not lead on"):
        bank.hear(first)
    back = KeyChanged(change=change_of(shop, shop.key, NEWER))
    with pytest.raises(PeerError, match="takes a key again"):
        bank.hear(back)
    assert bank.state.fellows["shop"].verify_key == bytes(NEWER.verify_key)


def test_a_roster_under_the_old_key_says_nothing_any_more():
    _, shop, telco = three()
    old = telco.state.rosters["shop"]
    telco.hear(KeyChanged(change=change_of(shop)))
    assert telco.state.rosters["shop"] == old
    assert telco.role.signers(telco.state, "bank") == ()


def test_words_that_were_not_compared_are_made_anew():
    bank, shop = Member("bank", 10), Member("shop", 20)
    for member in (bank, shop):
        member.hear(roster("bank", "shop"))
    deliver(bank, shop)
    words = bank.state.pairings["shop"].words
    assert words
    rotate(shop)
    shop.sent = [m for m in shop.sent if m.kind in ("pair", "key_changed")]
    deliver(bank, shop)
    assert bank.state.pairings["shop"].words == shop.state.pairings["bank"].words != words
    assert bank.state.pairings["shop"].verify_key == bytes(NEW.verify_key)


def registrar_with(*members: Member):
    registrar = Registrar()
    state, _ = registrar.step(registrar.initial(), Started(epoch=1, standing=NO_LEDGER))
    for member in members:
        me = member.role.me(member.state)
        seat = SeatMember(
            party=member.name,
            role=ROLES[member.name],
            verify_key=me.verify_key,
            curve_key=me.curve_key,
        )
        state, _ = registrar.step(state, OperatorCommand(command=seat))
    return registrar, state


def test_the_registrar_takes_a_change_from_its_owner_alone():
    bank, shop, telco = three()
    registrar, state = registrar_with(bank, shop, telco)
    change = KeyChanged(change=change_of(shop))
    with pytest.raises(PeerError, match="does not lead on"):
        registrar.step(state, Received("telco", change))
    with pytest.raises(PeerError, match="is not a member"):
        registrar.step(state, Received("mallory", change))
    state, effects = registrar.step(state, Received("shop", change))
    met = Meet(party="shop", role="passive", verify_key=bytes(NEW.verify_key))
    assert effects == (met, Send(("bank", "telco"), change))
    assert state.members["shop"].curve_key == CURVE
    with pytest.raises(PeerError, match="does not lead on"):
        registrar.step(state, Received("shop", change))


def test_nobody_takes_the_connection_of_another_member():
    """A key of connections is not proved by a signature: two members with one key would mix."""
    bank, shop, telco = three()
    registrar, state = registrar_with(bank, shop, telco)
    stolen = key_change("shop", shop.key, NEW, bank.role.me(bank.state).curve_key)
    with pytest.raises(PeerError, match="another member has"):
        registrar.step(state, Received("shop", KeyChanged(change=stolen)))


def test_a_third_party_pinned_later_pairs_with_the_new_key():
    bank, shop = Member("bank", 10), Member("shop", 20)
    acquainted(bank, shop)
    rotate(shop)
    shop.sent = [m for m in shop.sent if not isinstance(m, MemberHello)]
    deliver(bank, shop)
    telco = Member("telco", 30)
    for member in (bank, shop, telco):
        member.hear(roster("bank", "shop", "telco"))
    deliver(bank, shop, telco)
    assert telco.state.pairings["shop"].verify_key == bytes(NEW.verify_key)
