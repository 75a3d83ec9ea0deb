"""Padding, buckets, joins and blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.psi.blocks import Receiving, Sending
from hdpvfl_mq.psi.elements import (
    bucket_capacity,
    bucket_count,
    fill_bucket,
    find_pairs,
    hash_ids,
    padded_size,
    split_buckets,
)
from hdpvfl_mq.psi.stream import random_pairs

KEY = bytes(32)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 20_000, 10**6, 10**7])
def test_padding_is_coarse_cheap_and_stable(size: int) -> None:
    padded = padded_size(size)
    assert size <= padded <= max(64, size * 17 // 16 + 64)
    assert padded_size(padded) == padded


def test_sizes_near_each_other_look_alike() -> None:
    assert len({padded_size(size) for size in range(100_000, 200_000)}) <= 33


def test_buckets_divide_elements_and_hold_them() -> None:
    elements = hash_ids([f"{n}".encode() for n in range(50_000)], KEY)
    buckets = bucket_count([padded_size(len(elements)), 64], 1000)
    members = split_buckets(elements, buckets)
    assert sorted(members.positions) == list(range(50_000))
    capacity = bucket_capacity(padded_size(len(elements)), buckets)
    assert max(map(len, members)) <= capacity <= 1500
    for positions in list(members)[:3]:
        filled = fill_bucket(elements[positions], capacity, KEY)
        assert len(np.unique(filled, axis=0)) == capacity


def test_an_overfull_bucket_ends_the_run() -> None:
    with pytest.raises(IntegrityError, match="new seed"):
        fill_bucket(random_pairs(KEY, 5), 4, KEY)


def test_hashes_depend_on_the_seed() -> None:
    assert (hash_ids([b"a"], KEY) != hash_ids([b"a"], b"\1" * 32)).all()


def test_rows_that_share_their_first_word_are_told_apart() -> None:
    among = np.array([[1, 5], [2, 6], [1, 7], [1, 8]], dtype=np.uint64)
    wanted = np.array([[1, 8], [1, 5], [1, 9], [2, 5], [3, 1], [1, 7]], dtype=np.uint64)
    assert find_pairs(wanted, among).tolist() == [3, 0, -1, -1, -1, 2]
    assert find_pairs(wanted, among[:0]).tolist() == [-1] * 6


@pytest.mark.parametrize("size", [0, 1, 10, 11, 95])
@pytest.mark.parametrize("window", [1, 3, 20])
def test_blocks_rebuild_the_string_within_the_window(size: int, window: int) -> None:
    data = bytes(range(size))
    sending = Sending("query", 0, size, 10, window, data)
    receiving = Receiving("query", 0, size, 10, window)
    while not sending.is_sent:
        assert sending.next < sending.allowed <= receiving.next + window
        for index in range(sending.next, sending.allowed):
            payload, last = data[slice(*sending.bounds(index))], index == sending.count - 1
            assert not receiving.fits(index + 1, last, len(payload))
            assert not receiving.fits(index, not last, len(payload))
            assert not receiving.fits(index, last, len(payload) + 1)
            assert receiving.fits(index, last, len(payload))
            receiving = receiving.with_part(payload)
            if receiving.is_credit_due:
                assert sending.credited(index + 1) is None
                credited = sending.credited(index)
                assert credited is not None
                assert credited.credited(index) is None
                sending = replace(credited, next=index + 1)
            else:
                sending = replace(sending, next=index + 1)
    assert b"".join(receiving.parts) == data
    assert sending.credited(max(0, -(-size // 10) - window)) is None
