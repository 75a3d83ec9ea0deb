"""Packed ids are the list they were made of, and large sets are handled as small ones are."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi import normalise, row_order
from hdpvfl_mq.psi.packed import Packing
from schemas.config import IdRules

IDS = [b"a", b"bcd", b"\xff" * 40, b"0", b"bc"]
MANY = 150_000  # more than are looked through or sorted at a time
TEXT = IdRules()


@pytest.fixture
def packed():
    packing = Packing(np.empty)
    packing.add(IDS[:2])
    packing.add([])
    packing.add(IDS[2:])
    return packing.packed


def test_packed_ids_are_a_sequence(packed):
    assert list(packed) == IDS
    assert (len(packed), packed[0], packed[-1]) == (5, b"a", b"bc")
    assert [packed[1:4], packed[::-2], packed[3:3]] == [IDS[1:4], IDS[::-2], []]
    assert packed.at(np.array([4, 0, 0])) == [b"bc", b"a", b"a"]
    assert b"bcd" in packed


def test_chosen_ids_come_in_the_order_asked_for(packed):
    chosen = packed.chosen(np.array([3, 1, 4]), np.empty)
    assert list(chosen) == [b"0", b"bcd", b"bc"]
    assert list(chosen.chosen(np.array([2, 0]), np.empty)) == [b"bc", b"0"]


def test_packed_ids_are_not_shown(packed):
    assert repr(packed) == "<PackedIds of 5 ids>"
    assert "bcd" not in repr(normalise([["bcd", "x"]], TEXT))


def test_repeated_ids_of_a_large_table_are_named_by_row():
    values = [f"id{number}" for number in range(MANY)]
    values[140_000], values[9], values[70_000] = values[3], values[5], values[140_001]
    with pytest.raises(DataError, match=r"rows 10, 140001, 140002: remove"):
        normalise([values], TEXT)
    kept = normalise([values], IdRules(duplicates="first"))
    gone = {9, 140_000, 140_001}
    assert kept.rows.tolist() == [row for row in range(MANY) if row not in gone]
    assert list(kept.ids) == [v.encode() for row, v in enumerate(values) if row not in gone]


def test_ids_with_equal_hashes_are_compared(monkeypatch):
    monkeypatch.setattr("builtins.hash", lambda _: 7)
    kept = normalise([["a", "b", "a", "c"]], IdRules(duplicates="first"))
    monkeypatch.undo()
    assert list(kept.ids) == [b"a", b"b", b"c"]


def test_empty_ids_of_a_large_table_are_named_by_row():
    values = ["" if row in (5, 8191, 8192, 99_999) else f"{row}" for row in range(MANY)]
    with pytest.raises(DataError, match="rows 6, 8192, 8193, 100000: fill"):
        normalise([values], TEXT)
    assert len(normalise([values], IdRules(empties="drop")).ids) == MANY - 4


def test_a_bad_value_of_a_large_table_is_named_by_row():
    values: list[object] = [f"{row}" for row in range(MANY)]
    values[100_000] = 3.5
    with pytest.raises(DataError, match="column 1, row 100001:"):
        normalise([values], TEXT)


def test_the_order_of_many_rows_is_that_of_their_keys():
    ids = [b"%d" % number for number in range(MANY)]
    seed = b"\3" * 32
    keys = [blake2b(i, digest_size=16, key=seed, person=b"hdpvfl row order").digest() for i in ids]
    assert row_order(ids, seed).tolist() == sorted(range(MANY), key=keys.__getitem__)
