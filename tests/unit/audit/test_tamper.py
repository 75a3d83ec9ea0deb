"""Any change of a stored journal is noticed: flipped bits, and records moved, taken or added."""

from __future__ import annotations

import random
from functools import cache

import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.checks_chain import CheckFailed, chain_holds
from hdpvfl_mq.audit.evidence import Evidence, Transcript
from hdpvfl_mq.audit.reader import read_transcript
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal import chain
from tests.evidence import evidence_of, only, relinked, with_rows, write_run
from tests.federation import Federation, manifest, tables
from tests.unit.audit.honest import honest

pytestmark = pytest.mark.seconds

FLIPS, FILE_FLIPS = 20_000, 150


@cache
def large() -> Evidence:
    """A journal of at least 200 KiB, and little more: every bit of it is flipped."""
    federation = Federation(manifest(batch_rows=400, epochs=8), tables(400))
    federation.simulate()
    return only(evidence_of(federation), "bank")


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip(rows, bit: int):
    """(index of the row, that row with one bit of its record or digest flipped)."""
    for at, (index, stored, digest) in enumerate(rows):
        if bit < 8 * len(stored):
            return at, (index, flipped(stored, bit), digest)
        bit -= 8 * len(stored)
        if bit < 8 * len(digest):
            return at, (index, stored, flipped(digest, bit))
        bit -= 8 * len(digest)
    raise AssertionError("no such bit")


def noticed(evidence: Evidence, party: str, at: int, row) -> bool:
    """Whether check 2 sees the row; the other rows are as they were when all of them passed."""
    shown = Transcript(party, {}, (row,))
    try:
        chain_holds(Evidence(evidence.run, {}, {party: shown}))
    except CheckFailed as found:
        return "digest" in found.text
    return False


def test_20000_single_bits_of_a_large_journal():
    evidence = large()
    rows = evidence.transcripts["bank"].rows
    bits = 8 * sum(len(stored) + len(digest) for _, stored, digest in rows)
    assert bits >= 8 * 200 * 1024
    assert exit_code(audit(evidence)) == 0
    dice = random.Random(1)
    for _ in range(FLIPS):
        bit = dice.randrange(bits)
        assert noticed(evidence, "bank", *flip(rows, bit)), f"bit {bit}"


@pytest.mark.slow
def test_every_single_bit_of_a_large_journal():
    evidence, flips = large(), 0
    rows = evidence.transcripts["bank"].rows
    for at, (index, stored, digest) in enumerate(rows):
        for bit in range(8 * len(stored)):
            assert noticed(evidence, "bank", at, (index, flipped(stored, bit), digest))
        for bit in range(8 * len(digest)):
            assert noticed(evidence, "bank", at, (index, stored, flipped(digest, bit)))
        flips += 8 * (len(stored) + len(digest))
    assert flips >= 8 * 200 * 1024
    print(f"\n{flips:,} flipped bits, each noticed")


def test_bits_of_the_database_file(tmp_path):
    """A flipped bit of the file is noticed, or it is in no record: SQLite leaves room unused."""
    evidence = only(honest(), "shop")
    path = write_run(evidence, tmp_path) / "shop" / "journal.db"
    whole, rows = path.read_bytes(), evidence.transcripts["shop"].rows
    assert exit_code(audit(evidence)) == 0
    dice, seen = random.Random(2), 0
    for _ in range(FILE_FLIPS):
        path.write_bytes(flipped(whole, dice.randrange(8 * len(whole))))
        try:
            shown = read_transcript(path, "shop")
        except IntegrityError:
            seen += 1
            continue
        if shown.rows == rows:
            continue
        assert exit_code(audit(with_rows(evidence, "shop", shown.rows))), "a changed record passes"
        seen += 1
    assert seen > FILE_FLIPS // 2


@pytest.mark.parametrize("party", ["bank", "shop", "coordinator"])
@pytest.mark.parametrize("change", ["delete", "swap", "insert", "truncate", "splice"])
@pytest.mark.parametrize("linked", [False, True])
def test_records_moved_taken_or_added(party, change, linked):
    """Also when the whole chain is computed again, which needs no key."""
    evidence = honest()
    rows = list(evidence.transcripts[party].rows)
    middle = len(rows) // 2
    if change == "delete":
        del rows[middle]
    elif change == "swap":
        rows[middle], rows[middle + 1] = rows[middle + 1], rows[middle]
    elif change == "insert":
        rows.insert(middle, rows[middle - 1])
    elif change == "truncate":
        rows = rows[: -len(rows) // 3]
    else:
        rows[middle:] = _other_run(party)[middle:]
    if linked:
        rows = relinked([chain.decode(stored, index) for index, stored, _ in rows])
    assert exit_code(audit(with_rows(evidence, party, rows))) == 5


def test_a_journal_that_is_cut_before_its_last_word_contradicts_the_others():
    """After its last word a party only listens; that nobody else can know it heard, is stated."""
    evidence = honest()
    shown = evidence.transcripts["telco"]
    last_word = max(envelope.place.index for envelope in shown.sent())
    for length in range(1, last_word + 1):
        assert exit_code(audit(with_rows(evidence, "telco", shown.rows[:length]))) == 5, length


@cache
def _other_run(party: str):
    federation = Federation(manifest(batch_rows=20, seed=8), tables(44))
    federation.simulate()
    return evidence_of(federation).transcripts[party].rows
