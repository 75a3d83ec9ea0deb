"""Members sign whom they have pinned; a registrar can neither add anybody nor change a roster."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from broker.registrar import Registrar
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import OperatorCommand, Received, Send, Started
from hdpvfl_mq.node.node import NO_LEDGER
from parties.belonging import Belonging
from parties.membership import Membership
from parties.pairing import Self
from parties.roster import Dispute
from schemas.commands import ConfirmMember, RemoveMember, SeatMember
from schemas.federation import Roster, RosterEntry, SignedRoster
from schemas.ids import COORDINATOR

ROLES = {"bank": "active", "shop": "passive", "telco": "passive", "mallory": "passive"}


class Member:
    """A member's role, its state and what it has sent."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.key = name, SigningKey(bytes([seed]) * 32)
        self.first = Self(
            "spring",
            name,
            bytes(self.key.verify_key),
            bytes([seed + 1]) * 32,
            bytes([seed + 2]) * 32,
            ROLES[name],
        )
        self.role = Membership(self.first, self.key)
        self.state: Belonging = self.role.initial()
        self.sent: list = []

    def take(self, given) -> None:
        self.state, effects = self.role.step(self.state, given)
        self.sent += [effect.message for effect in effects if isinstance(effect, Send)]

    def hear(self, message) -> None:
        self.take(Received(COORDINATOR, message))

    def command(self, command) -> None:
        self.take(OperatorCommand(command=command))


def roster(*names: str) -> Roster:
    return Roster(members=tuple(RosterEntry(party=n, role=ROLES[n]) for n in names))


def deliver(*members: Member) -> None:
    """What an honest registrar passes on, until nobody says anything more."""
    by_name = {member.name: member for member in members}
    while any(member.sent for member in members):
        for member in members:
            waiting, member.sent = member.sent, []
            for message in waiting:
                if message.kind == "pair":
                    passed = type(message)(**{**dict(message), "peer": member.name})
                    by_name[message.peer].hear(passed)
                else:
                    for other in members:
                        if other is not member:
                            other.hear(message)


def acquainted(*members: Member) -> None:
    for member in members:
        member.hear(roster(*(each.name for each in members)))
    deliver(*members)
    for member in members:
        for other in members:
            if other is not member:
                member.command(ConfirmMember(party=other.name))
    deliver(*members)


def three() -> list[Member]:
    members = [Member("bank", 10), Member("shop", 20), Member("telco", 30)]
    acquainted(*members)
    return members


def test_members_sign_for_each_other():
    bank, shop, telco = three()
    for member in (bank, shop, telco):
        assert member.role.disputes(member.state) == ()
    assert bank.role.signers(bank.state, "shop") == ("telco",)
    assert shop.role.signers(shop.state, "bank") == ("telco",)


def test_nobody_is_pinned_on_the_registrars_word():
    bank, _, _ = three()
    mallory = Member("mallory", 40)
    everybody = roster("bank", "shop", "telco", "mallory")
    bank.hear(everybody)
    mallory.hear(roster("bank", "mallory"))
    deliver(bank, mallory)
    assert bank.state.pairings["mallory"].words
    assert "mallory" not in bank.state.fellows
    # Neither does a roster that a stranger has signed make anybody known.
    acquainted(mallory)
    forged = SignedRoster(
        signer="mallory", edition=9, members=(), signature=mallory.key.sign(b"x").signature
    )
    bank.hear(forged)
    assert "mallory" not in bank.state.fellows


def test_a_member_that_knows_other_keys_is_named():
    """A registrar that stood between telco and shop is found out by bank, who knows both."""
    bank, shop, telco = Member("bank", 10), Member("shop", 20), Member("telco", 30)
    acquainted(bank, shop)
    for member in (bank, telco):
        member.hear(roster("bank", "shop", "telco"))
    liar = Member("shop", 60)  # the registrar's own keys under the name of shop
    liar.hear(roster("bank", "shop", "telco"))
    bank.sent = [m for m in bank.sent if m.kind != "pair" or m.peer == "telco"]
    liar.sent = [m for m in liar.sent if m.kind != "pair" or m.peer == "telco"]
    deliver(bank, telco, liar)
    bank.command(ConfirmMember(party="telco"))
    telco.command(ConfirmMember(party="bank"))
    telco.command(ConfirmMember(party="shop"))  # telco did not compare the words
    signed = [m for m in telco.sent if isinstance(m, SignedRoster)][-1]
    bank.hear(signed)
    found = bank.role.disputes(bank.state)
    assert found == (Dispute("shop", by="telco"),)
    assert "compare words again" in str(found[0])


def test_a_roster_changed_on_its_way_says_nothing():
    bank, shop, telco = three()
    telco.command(RemoveMember(party="shop"))
    signed = next(m for m in telco.sent if isinstance(m, SignedRoster))
    changed = [
        type(entry)(**{**dict(entry), "verify_key": bytes(32)}) if entry.party == "bank" else entry
        for entry in signed.members
    ]
    bank.hear(SignedRoster(**{**dict(signed), "members": tuple(changed)}))
    assert bank.role.disputes(bank.state) == ()
    assert bank.role.signers(bank.state, "shop") == ()
    shop.hear(signed)
    shop.hear(SignedRoster(**{**dict(signed), "edition": signed.edition - 1}))
    assert shop.state.rosters["telco"] == signed  # an earlier edition does not come back


def test_every_key_that_an_operator_has_removed_is_noted():
    """Bug: after a second removal, settings brought the key back that was removed first."""
    bank, _, _ = three()
    first = bank.state.fellows["shop"].verify_key
    bank.command(RemoveMember(party="shop"))
    second = {"verify_key": b"k" * 32, "curve_key": bytes(32)}
    bank.command(SeatMember(party="shop", role="passive", **second))
    bank.command(RemoveMember(party="shop"))
    assert bank.state.removed["shop"] == (first, b"k" * 32)


def test_who_has_left_is_known_no_more_and_the_others_sign_that():
    bank, _, _ = three()
    bank.hear(roster("bank", "telco"))
    assert set(bank.state.fellows) == {"telco"}
    signed = next(m for m in bank.sent if isinstance(m, SignedRoster))
    assert {entry.party for entry in signed.members} == {"bank", "telco"}
    with pytest.raises(PeerError, match="not another member"):
        bank.hear(SignedRoster(**{**dict(signed), "signer": "shop"}))


def test_the_registrar_passes_rosters_on_and_refuses_borrowed_names():
    registrar = Registrar()
    state, _ = registrar.step(registrar.initial(), Started(epoch=1, standing=NO_LEDGER))
    bank, shop, _ = three()
    for member in (bank, shop):
        seat = SeatMember(
            party=member.name,
            role=ROLES[member.name],
            verify_key=member.first.verify_key,
            curve_key=member.first.curve_key,
        )
        state, _ = registrar.step(state, OperatorCommand(command=seat))
    bank.command(RemoveMember(party="shop"))
    signed = next(m for m in bank.sent if isinstance(m, SignedRoster))
    state, effects = registrar.step(state, Received("bank", signed))
    assert effects == (Send(("shop",), signed),)
    with pytest.raises(PeerError, match="somebody else"):
        registrar.step(state, Received("shop", signed))
