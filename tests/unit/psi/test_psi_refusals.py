"""Malformed messages are refused by sender and stage, and a refused message changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from psi_federation import Federation, received, shaped_sets

from hdpvfl_mq.errors import CheatingError, PeerError, SettingsError
from hdpvfl_mq.psi import Outgoing, Session, Workspace, open_session
from hdpvfl_mq.psi.ids import rules_digest
from schemas.config import IdRules

pytestmark = pytest.mark.seconds

METHODS = ["ecdh", "oprf"]
NOBODY = Workspace([], bytes(32))
Change = Callable[[Outgoing], Outgoing]

SEALED_CHANGES: dict[str, Change] = {
    "flipped": lambda m: replace(m, payload=bytes([m.payload[0] ^ 1]) + m.payload[1:]),
    "truncated": lambda m: replace(m, payload=m.payload[:-1]),
    "empty": lambda m: replace(m, payload=b""),
    "extended": lambda m: replace(m, payload=m.payload + b"\0"),
    "oversize": lambda m: replace(m, payload=bytes(1 << 15)),
    "renumbered": lambda m: replace(m, index=m.index + 1),
    "mark turned": lambda m: replace(m, last=not m.last),
    "moved": lambda m: replace(m, meta=(7,)),
    "renamed": lambda m: replace(m, stage="open" if m.stage == "credit" else "credit"),
    "unknown": lambda m: replace(m, stage="x" * 1000),
}
HELLO_CHANGES: dict[str, Change] = {
    "truncated": SEALED_CHANGES["truncated"],
    "extended": SEALED_CHANGES["extended"],
    "degenerate": lambda m: replace(m, payload=bytes(32) + m.payload[32:]),
    "another nonce": lambda m: replace(m, payload=m.payload[:-32] + bytes(32)),
    "no size": lambda m: replace(m, meta=()),
    "negative": lambda m: replace(m, meta=(-64,)),
    "unpadded": lambda m: replace(m, meta=(65,)),
    "too large": lambda m: replace(m, meta=(1 << 40,)),
    "renamed": lambda m: replace(m, stage="open"),
}


class _Tampering(Federation):
    """Tries every change, and every wrong sender, before each delivery."""

    tried = 0

    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        changes = HELLO_CHANGES if message.stage == "hello" else SEALED_CHANGES
        attempts = [(sender, change(message)) for change in changes.values()]
        attempts += [(name, message) for name in self.names if name not in (sender, receiver)][-1:]
        attempts.append(("stranger", message))
        for claimed, changed in attempts:
            if message.stage == "hello" and claimed in self.names and claimed != sender:
                continue  # a hello by another party is that party's first or second one
            with pytest.raises(PeerError, match=rf"^{claimed} .*stage") as refusal:
                self.give(claimed, receiver, changed)
            assert len(str(refusal.value)) < 200
            self.tried += 1


STAGES = ("open", "choose", "query", "answer", "verdict", "common", "credit")


class _OutOfTurn(Federation):
    """Before each delivery, the sender seals every stage with its own key and sends that."""

    tried = 0

    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        links = self.sessions[sender].links
        for stage in STAGES if receiver in links else ():
            for meta in ((), (0,), (7,)):
                place, payload = (stage, 0, True, meta), bytes(40)
                sealed = links[receiver].seal(place, payload)
                block = received(sender, Outgoing((receiver,), stage, 0, True, sealed, meta))
                with suppress(PeerError, CheatingError):  # any other error would stop a process
                    self.sessions[receiver].receive(self.works[receiver], block)
                self.tried += 1


@pytest.mark.parametrize("method", METHODS)
def test_an_answer_before_the_question_stops_nobody(method: str) -> None:
    sets = shaped_sets("overlapping", 3, 100)
    terms = {"block_bytes": 1 << 14, "window": 2}
    federation = _OutOfTurn(method, sets, **terms).run().check()
    assert federation.tried > 200


@pytest.mark.parametrize("method", METHODS)
def test_refused_messages_change_nothing(method: str) -> None:
    sets = shaped_sets("overlapping", 3, 100)
    terms = {"block_bytes": 1 << 14, "window": 2}
    federation = _Tampering(method, sets, **terms).run().check()
    assert federation.tried > 200


class _Doubling(Federation):
    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        for delivered in self.delivered[-40:]:
            if (delivered.sender, delivered.receiver) == (sender, receiver):
                with pytest.raises(PeerError):
                    self.give(sender, receiver, delivered.message)


@pytest.mark.parametrize("method", METHODS)
def test_old_messages_are_refused(method: str) -> None:
    sets = shaped_sets("overlapping", 3, 1000)
    terms = {"bucket_ids": 512, "block_bytes": 1 << 14, "window": 1}
    federation = _Doubling(method, sets, **terms).run().check()
    assert "credit" in {delivered.message.stage for delivered in federation.delivered}


class _Lying(Federation):
    """A peer that first seals a wrong content in one stage, then the right one."""

    stage = ""
    lies_told = 0

    def lie(self, clear: bytes) -> bytes:
        return clear

    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        if message.stage != self.stage:
            return
        place = (message.stage, message.index, message.last, message.meta)
        clear = self.sessions[receiver].links[sender].unseal(place, message.payload)
        assert clear is not None
        sealed = self.sessions[sender].links[receiver].seal(place, self.lie(clear))
        with pytest.raises(PeerError, match=rf"^{sender} .*stage {self.stage}$"):
            self.give(sender, receiver, replace(message, payload=sealed))
        self.lies_told += 1


LIES: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("ecdh", "open", lambda clear: b"\1"),
    ("ecdh", "choose", lambda clear: b"\1"),
    ("ecdh", "query", lambda clear: bytes(len(clear))),
    ("ecdh", "query", lambda clear: b"\xff" * len(clear)),
    ("ecdh", "query", lambda clear: clear[:-32]),
    ("ecdh", "answer", lambda clear: bytes(len(clear))),
    ("ecdh", "answer", lambda clear: clear + bytes(16)),
    ("ecdh", "verdict", lambda clear: (10**6).to_bytes(8, "big")),
    ("ecdh", "verdict", lambda clear: clear + b"\0"),
    ("ecdh", "common", lambda clear: bytes(len(clear))),
    ("ecdh", "common", lambda clear: clear[:16] * (len(clear) // 16)),
    ("oprf", "open", lambda clear: bytes(32)),
    ("oprf", "choose", lambda clear: clear[:-32] + bytes(32)),
    ("oprf", "choose", lambda clear: clear[:-32]),
    ("oprf", "query", lambda clear: clear[:-1]),
    ("oprf", "answer", lambda clear: clear[:-16]),
]


@pytest.mark.parametrize(("method", "stage", "lie"), LIES)
def test_wrong_contents_are_refused(method: str, stage: str, lie: Callable[[bytes], bytes]) -> None:
    federation = _Lying(method, shaped_sets("overlapping", 2, 50))
    federation.stage, federation.lie = stage, lie
    federation.run().check()  # the true message after the lie still counts
    assert federation.lies_told > 0


def test_another_profile_is_told_at_the_first_message() -> None:
    federation = Federation("ecdh", shaped_sets("identical", 2, 5))
    terms = replace(federation.terms, profile_digest=rules_digest(IdRules(casefold=True)))
    other = open_session(terms, "party1", NOBODY)
    with pytest.raises(PeerError, match="party0 reads ids by another profile"):
        _greet(other, "party0", federation)
    (hello,) = other.start(NOBODY)
    with pytest.raises(PeerError, match="party1 reads ids by another profile"):
        federation.give("party1", "party0", hello)


@pytest.mark.parametrize("other", [{"rows_min": 5}, {"bucket_ids": 99}, {"method": "oprf"}])
def test_other_terms_are_told_at_the_first_message(other: dict[str, int]) -> None:
    federation = Federation("ecdh", shaped_sets("identical", 2, 5))
    session = open_session(replace(federation.terms, **other), "party1", NOBODY)
    with pytest.raises(PeerError, match="party0 has other terms"):
        _greet(session, "party0", federation)


def _greet(session: Session, sender: str, federation: Federation) -> None:
    (hello,) = federation.sessions[sender].start(federation.works[sender])
    session.receive(NOBODY, received(sender, hello))


def test_only_parties_may_open_a_session() -> None:
    federation = Federation("ecdh", [[], []])
    with pytest.raises(SettingsError, match="not a party"):
        open_session(federation.terms, "stranger", NOBODY)
    with pytest.raises(SettingsError, match="32 bytes"):
        open_session(federation.terms, "party0", Workspace([], b"short"))


def test_parties_must_differ() -> None:
    federation = Federation("ecdh", [[], []])
    for passives in ((), ("party0",), ("party1", "party1")):
        with pytest.raises(SettingsError, match="all different"):
            replace(federation.terms, passives=passives)
