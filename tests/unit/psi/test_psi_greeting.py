"""Hellos that the active party relays: as good as greeting every party, and not to be forged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from psi_federation import Federation, shaped_sets

from hdpvfl_mq.errors import CheatingError, MembersError, PeerError, SettingsError, TermsError
from hdpvfl_mq.psi import Outgoing, Workspace, open_session
from hdpvfl_mq.psi.greeting import (
    SignedHello,
    pack_hellos,
    read_hello,
    read_hellos,
    statement,
)
from hdpvfl_mq.psi.stream import derive

pytestmark = pytest.mark.seconds
MEMBERS = bytes(range(32))
Hellos = dict[str, SignedHello]


@dataclass(frozen=True)
class Pens:
    """Signatures that only the holder of a party's name can make; enough for these tests."""

    party: str

    def sign(self, statement: bytes) -> bytes:
        return 2 * derive(statement, "signed", self.party)

    def is_signed(self, party: str, statement: bytes, signature: bytes) -> bool:
        return signature == Pens(party).sign(statement)


class Relayed(Federation):
    """The parties of a run in version 2 of the protocol."""

    def __init__(self, method: str, sets, **terms) -> None:
        super().__init__(method, sets, **{"members": MEMBERS, **terms})
        for name, ids in self.sets.items():
            self.works[name] = Workspace(ids, self.secret_of(name), signatures=Pens(name))

    def stated(self, party: str, hello: SignedHello, session_id: bytes | None = None) -> bytes:
        """What a party signs under its hello."""
        return statement(session_id or self.terms.session_id, party, hello.hello, hello.size)


def four_parties(kind: type[Relayed] = Relayed) -> Relayed:
    return kind("ecdh", shaped_sets("overlapping", 4, 60))


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_all_find_the_same_in_any_order_of_arrival(parties: int, seed: int) -> None:
    sets = shaped_sets("overlapping", parties, 60)
    relayed = Relayed("ecdh", sets).run(random.Random(seed)).check()
    direct = Federation("ecdh", sets).run().check()
    assert relayed.found() == direct.found()
    assert {s.seed for s in relayed.sessions.values()} == {relayed.public_seed}


def test_passive_parties_send_each_other_nothing() -> None:
    federation = four_parties().run().check()
    active = federation.terms.active
    assert all(active in (each.sender, each.receiver) for each in federation.delivered)
    stages = Counter(each.message.stage for each in federation.delivered)
    assert (stages["hello"], stages["hellos"]) == (3, 3)


def test_passive_parties_share_keys_that_the_active_party_does_not_know() -> None:
    federation = four_parties().run().check()
    sessions = {name: federation.sessions[name] for name in federation.terms.passives}
    for name, session in sessions.items():
        for other in sessions.keys() - {name}:
            assert session.links[other].shared_key == sessions[other].links[name].shared_key
    known = {
        link.shared_key for link in federation.sessions[federation.terms.active].links.values()
    }
    between = {s.links[o].shared_key for n, s in sessions.items() for o in sessions if o != n}
    assert not known & between


# -- a lying active party -----------------------------------------------------------------------


def _other_key(federation: Relayed, hellos: Hellos) -> Hellos:
    """The key of party1 replaced by the active party's, to stand between two passive parties."""
    mine, theirs = hellos["party0"], hellos["party1"]
    return {**hellos, "party1": replace(theirs, hello=mine.key + theirs.hello[32:])}


def _other_key_signed_by_itself(federation: Relayed, hellos: Hellos) -> Hellos:
    forged = _other_key(federation, hellos)["party1"]
    signature = Pens("party0").sign(federation.stated("party1", forged))
    return {**hellos, "party1": replace(forged, signature=signature)}


def _other_size(federation: Relayed, hellos: Hellos) -> Hellos:
    return {**hellos, "party1": replace(hellos["party1"], size=2 * hellos["party1"].size)}


def _another_session(federation: Relayed, hellos: Hellos) -> Hellos:
    """A hello that party1 has signed in another session."""
    earlier = federation.stated("party1", hellos["party1"], session_id=bytes(32))
    return {**hellos, "party1": replace(hellos["party1"], signature=Pens("party1").sign(earlier))}


def _swapped(federation: Relayed, hellos: Hellos) -> Hellos:
    return {**hellos, "party1": hellos["party3"], "party3": hellos["party1"]}


def _doubled(federation: Relayed, hellos: Hellos) -> Hellos:
    return {**hellos, "party1": hellos["party3"]}


def _receivers_own(federation: Relayed, hellos: Hellos) -> Hellos:
    """An older hello of the receiver itself."""
    return {**hellos, "party2": replace(hellos["party2"], signature=bytes(64))}


def _impossible_size(federation: Relayed, hellos: Hellos) -> Hellos:
    return {**hellos, "party1": replace(hellos["party1"], size=65)}


@pytest.mark.parametrize(
    "forge",
    [
        _other_key,
        _other_key_signed_by_itself,
        _other_size,
        _another_session,
        _swapped,
        _doubled,
        _receivers_own,
        _impossible_size,
    ],
)
def test_what_the_active_party_changes_is_laid_to_it(
    forge: Callable[[Relayed, Hellos], Hellos],
) -> None:
    class Forging(Relayed):
        tried = 0

        def before(self, sender: str, receiver: str, message: Outgoing) -> None:
            if (receiver, message.stage) != ("party2", "hellos"):
                return
            listed = read_hellos(self.terms.parties, message.payload)
            assert listed is not None
            forged = pack_hellos(self.terms.parties, forge(self, dict(listed)))
            with pytest.raises(CheatingError, match=r"^party0 relays"):
                self.give(sender, receiver, replace(message, payload=forged))
            self.tried += 1

    federation = four_parties(Forging).run().check()
    assert isinstance(federation, Forging)
    assert federation.tried == 1


def test_the_last_to_show_its_nonce_cannot_choose_the_public_seed() -> None:
    """The active party knows all other nonces when it sends its own."""

    class Grinding(Relayed):
        tried = 0

        def before(self, sender: str, receiver: str, message: Outgoing) -> None:
            if message.stage != "hellos":
                return
            hellos = dict(read_hellos(self.terms.parties, message.payload) or ())
            own = hellos["party0"]
            ground = replace(own, hello=own.hello[:96] + bytes(32) + own.members)
            ground = replace(ground, signature=Pens("party0").sign(self.stated("party0", ground)))
            payload = pack_hellos(self.terms.parties, {**hellos, "party0": ground})
            with pytest.raises(
                CheatingError, match=r"^party0 shows a nonce that it did not commit to"
            ):
                self.give(sender, receiver, replace(message, payload=payload))
            self.tried += 1

    federation = four_parties(Grinding).run().check()
    assert isinstance(federation, Grinding)
    assert federation.tried == 3


def test_a_list_without_exactly_one_hello_of_each_is_refused() -> None:
    class Wrong(Relayed):
        tried = 0

        def before(self, sender: str, receiver: str, message: Outgoing) -> None:
            if message.stage != "hellos":
                return
            entry = len(message.payload) // len(self.names)
            for payload in (
                b"",
                message.payload[:-1],
                message.payload[:-entry],
                message.payload + message.payload[:entry],
            ):
                with pytest.raises(PeerError, match=r"^party0 .*stage hellos"):
                    self.give(sender, receiver, replace(message, payload=payload))
            other = "party2" if receiver == "party3" else receiver
            with pytest.raises(PeerError, match=r"^party3 .*stage hellos"):
                self.give("party3", other, message)
            with pytest.raises(PeerError, match=r"^party1 .*stage hellos"):
                self.give("party1", "party0", message)
            self.tried += 1

    federation = four_parties(Wrong).run().check()
    assert isinstance(federation, Wrong)
    assert federation.tried == 3


def test_a_second_list_is_refused() -> None:
    federation = four_parties().run().check()
    again = [each for each in federation.delivered if each.message.stage == "hellos"]
    for each in again:
        with pytest.raises(PeerError, match="second message, stage hellos"):
            federation.give(each.sender, each.receiver, each.message)


# -- a lying passive party ----------------------------------------------------------------------


def signed_by(federation: Relayed, name: str) -> tuple[Outgoing, SignedHello]:
    (message,) = federation.sessions[name].start(federation.works[name])
    hello = read_hello(message.payload, message.meta, is_signed=True)
    assert hello is not None
    return message, hello


def test_a_hello_needs_its_partys_signature_in_this_session() -> None:
    federation = four_parties()
    message, hello = signed_by(federation, "party1")
    elsewhere = Pens("party1").sign(federation.stated("party1", hello, session_id=bytes(32)))
    for signature in (bytes(64), elsewhere, signed_by(federation, "party2")[1].signature):
        wrong = replace(message, payload=hello.hello + signature)
        with pytest.raises(CheatingError, match="party1 has not signed its hello"):
            federation.give("party1", "party0", wrong)
    with pytest.raises(PeerError, match="malformed"):
        federation.give("party1", "party0", replace(message, payload=hello.hello))
    assert federation.give("party1", "party0", message) == ()
    with pytest.raises(PeerError, match="second"):
        federation.give("party1", "party0", message)


def test_passive_parties_do_not_greet_each_other() -> None:
    federation = four_parties()
    message, _ = signed_by(federation, "party1")
    with pytest.raises(PeerError, match=r"^party1 .*stage hello"):
        federation.give("party1", "party2", message)
    assert federation.sessions["party2"].waiting_for == ("party0",)
    assert federation.sessions["party0"].waiting_for == ("party1", "party2", "party3")


def test_other_members_and_other_terms_are_told_before_signatures_are_checked() -> None:
    """Parties with other terms sign other statements, and neither of them has forged one."""
    federation = four_parties()
    for change, error in (
        ({"members": bytes(32)}, MembersError),
        ({"rows_min": 5}, TermsError),
        ({"session_id": bytes(32)}, TermsError),
    ):
        terms = replace(federation.terms, **change)
        other = open_session(terms, "party1", federation.works["party1"])
        (hello,) = other.start(federation.works["party1"])
        with pytest.raises(error, match=r"^party1 "):
            federation.give("party1", "party0", hello)


def test_a_digest_of_members_has_32_bytes() -> None:
    with pytest.raises(SettingsError, match="digest of the members"):
        Relayed("ecdh", [[], []], members=b"short")
