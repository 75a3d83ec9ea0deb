"""The order of common rows is shared, keyed and independent of any party's own order."""

from __future__ import annotations

import random
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from hdpvfl_mq.psi.order import order_digest, row_order
from hdpvfl_mq.psi.packed import PackedIds

SEED = bytes(range(32))
IDS = [f"person {number}".encode() for number in range(500)]


def _ordered(ids: list[bytes], seed: bytes) -> list[bytes]:
    return [ids[position] for position in row_order(ids, seed)]


def test_order_is_a_function_of_the_set_and_the_seed() -> None:
    shuffled = IDS.copy()
    random.Random(1).shuffle(shuffled)
    assert _ordered(shuffled, SEED) == _ordered(IDS, SEED)
    assert sorted(_ordered(IDS, SEED)) == sorted(IDS)
    assert _ordered(IDS, bytes(32)) != _ordered(IDS, SEED)


def test_order_forgets_the_order_of_the_rows() -> None:
    positions = row_order(IDS, SEED)
    rising = sum(a < b for a, b in pairwise(positions))
    assert 200 < rising < 300


def test_no_ids_have_an_order() -> None:
    assert row_order([], SEED).tolist() == []


def test_digest_sees_order_content_key_and_borders() -> None:
    digests = {
        order_digest([b"ab", b"c"], SEED),
        order_digest([b"c", b"ab"], SEED),
        order_digest([b"a", b"bc"], SEED),
        order_digest([b"ab"], SEED),
        order_digest([b"ab", b"c"], bytes(32)),
    }
    assert len(digests) == 5


def test_digest_is_over_lengths_and_ids_wherever_they_are_kept() -> None:
    ids = [b"", b"a", bytes(300), *IDS] * 20  # more than one chunk
    state = blake2b(digest_size=32, key=SEED, person=b"hdpvfl order sum")
    for each in ids:
        state.update(len(each).to_bytes(4, "big") + each)
    assert order_digest(ids, SEED) == state.digest()
    backwards = PackedIds.of(ids[::-1]).chosen(np.arange(len(ids))[::-1], np.empty)
    assert order_digest(backwards, SEED) == state.digest()
