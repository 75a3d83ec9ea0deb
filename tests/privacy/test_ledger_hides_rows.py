"""Whoever sees a party's ledger heads, or its ledger file, cannot test a guess about one row."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.data.preprocess import PreparedData, prepare
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, extend
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.wire.codec import decode_body, decode_header
from parties.process.ledger_book import LedgerBook
from schemas.envelope import PROTOCOL_VERSION
from schemas.messages import Message
from schemas.privacy import LedgerHead, Release
from schemas.records import EnvelopeReceived
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, policy

ROW, COLUMN = 17, "shop_0"
CANDIDATES = 200


@cache
def federation(guarantee: str = "sound") -> Federation:
    spoken = {} if guarantee == "sound" else {"guarantee": "none", "budget": None}
    ran = Federation(manifest(**spoken, wire=PROTOCOL_VERSION))
    ran.simulate()
    assert set(ran.outcomes.values()) == {"completed"}
    return ran


@cache
def guesses() -> tuple[PreparedData, ...]:
    """The shop's rows as they are, and with each of 200 other values in one cell."""
    table, settings = federation().tables["shop"], federation().settings("shop")
    found = []
    for number in range(CANDIDATES + 1):
        columns = {name: np.array(table[name]) for name in table.names}
        columns[COLUMN][ROW] += number
        found.append(prepare(Table.of(columns), settings, role="passive"))
    return tuple(found)


def heard(ran: Federation, party: str, kind: str) -> Iterator[Message]:
    """What the shop told a party."""
    for record, _ in walk(ran.journals[party].records()):
        if isinstance(record.input, EnvelopeReceived):
            header = decode_header(record.input.frames)
            if (header.sender, header.kind) == ("shop", kind):
                yield decode_body(header, record.input.frames)


def heads(ran: Federation) -> set[LedgerHead]:
    """Every head of the shop's ledger that left it, to anybody."""
    told = {m.head for p in ("bank", "telco") for m in heard(ran, p, "ledger_head")}
    return told | {m.ledger for m in heard(ran, "coordinator", "hello")}


def releases(ran: Federation) -> list[Release]:
    return [message.release for message in heard(ran, "bank", "score_share")]


def rebuilt(ran: Federation, rows: PreparedData, secret: LedgerSecret) -> set[LedgerHead]:
    """The heads the shop's ledger would have had with these rows, from what its peers know."""
    ledger = Ledger(sqlite3.connect(":memory:", isolation_level=None), "shop", secret)
    accounts, left = LedgerBook(ledger, policy(), ran.manifest.run, rows.fingerprint), releases(ran)
    accounts.reserve(
        Reserve(
            mu2_units=sum(release.event.mu2_units for release in left),
            tau_units=sum(release.event.tau_units for release in left),
            exact=ran.manifest.guarantee == "none",
        )
    )
    accounts.book(left)
    by_format_1, head = set(), EMPTY_LEDGER
    for _, body in ledger.openings():
        if b'"kind":"secret"' not in body:
            plain = body.replace(
                ledger.secret.fingerprint(rows.fingerprint).encode(),
                rows.fingerprint.hex().encode(),
            ).replace(b',"keyed":false', b"")
            by_format_1.add(head := extend(head, plain, None))
    return by_format_1 | {head for head, _ in ledger.entries()}


def found(ran: Federation, secret: LedgerSecret) -> list[int]:
    """The candidates whose ledger would have had the last head that left."""
    last = max(heads(ran), key=lambda head: head.sequence)
    return [n for n, rows in enumerate(guesses()) if last in rebuilt(ran, rows, secret)]


def test_a_peer_with_the_heads_and_200_candidates_does_not_find_the_row() -> None:
    """Without a secret in the chain this found the row, and nothing but the row."""
    assert found(federation(), LedgerSecret(bytes(32))) == []


def test_the_secret_is_all_that_the_peer_lacks() -> None:
    ran = federation()
    assert found(ran, LedgerSecret(ran.secret("shop", b"ledger"))) == [0]


@pytest.mark.parametrize("guarantee", ["sound", "none"])
def test_whoever_is_shown_the_ledger_file_cannot_test_a_guess(guarantee: str) -> None:
    """Neither rows nor un-noised scores are in it under a hash that others can compute."""
    ran = federation(guarantee)
    shown = ran.ledgers["shop"].serialize()
    assert ran.secret("shop", b"ledger") not in shown
    rows = ran.data["shop"].fingerprint
    digests = [rows, *(hashlib.sha256(r.tensor.data).digest() for r in releases(ran))]
    tests = [digests[0], *(digests[1:] if guarantee == "none" else ())]
    for digest in tests:
        for spelled in (digest, digest.hex().encode(), _base64(digest)):
            assert spelled not in shown
    if guarantee == "sound":  # a digest of what is noised is covered by the guarantee
        assert all(_base64(digest) in shown for digest in digests[1:])


@pytest.mark.parametrize("guarantee", ["sound", "none"])
def test_an_auditor_can_still_check_what_the_ledger_books(guarantee: str) -> None:
    evidence = evidence_of(federation(guarantee))
    assert [verdict for verdict in audit(evidence) if not verdict.passed] == []


def test_the_same_rows_are_recognised_and_others_are_not() -> None:
    """All an auditor needs of a fingerprint: that the same data came back."""
    own, other = LedgerSecret(b"a" * 32), LedgerSecret(b"b" * 32)
    same, changed = guesses()[0].fingerprint, guesses()[1].fingerprint
    assert own.fingerprint(same) == own.fingerprint(bytes(same))
    assert own.fingerprint(same) != own.fingerprint(changed)
    assert own.fingerprint(same) != other.fingerprint(same)


def test_nobody_can_make_a_head_of_entries_it_guesses() -> None:
    """A head is made of commitments: with another opening the same entry gives another."""
    heads = {
        extend(EMPTY_LEDGER, b"an entry", opening).digest for opening in (b"a" * 32, b"b" * 32)
    }
    assert len(heads) == 2


def _base64(digest: bytes) -> bytes:
    return base64.urlsafe_b64encode(digest)
