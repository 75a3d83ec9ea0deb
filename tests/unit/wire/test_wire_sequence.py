"""Per-peer numbers: once, in order, within limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.sequence import (
    EARLY_BYTES_ALL,
    EARLY_BYTES_EACH,
    EARLY_BYTES_MAX,
    EARLY_MAX,
    Busy,
    Inbox,
    Outbox,
)


@given(st.permutations(range(1, 13)), st.lists(st.integers(1, 12), max_size=20))
def test_any_order_with_copies_comes_out_once_and_in_order(order, copies):
    inbox: Inbox[int] = Inbox()
    out = []
    for number in [*order, *copies]:
        inbox.offer(number, number, 1)
        while (item := inbox.next()) is not None:
            out.append(item)
    assert out == list(range(1, 13))
    assert not inbox.early


def test_a_copy_is_told_from_news():
    inbox: Inbox[str] = Inbox()
    assert inbox.offer(1, "a", 1)
    assert not inbox.offer(1, "b", 1)
    assert inbox.next() == "a"
    assert not inbox.offer(1, "c", 1)
    assert inbox.next() is None


def test_what_waits_for_a_missing_envelope_is_bounded():
    inbox: Inbox[int] = Inbox()
    for number in range(2, EARLY_MAX + 1):
        assert inbox.offer(number, number, 1)
    with pytest.raises(PeerError, match="too far ahead"):
        inbox.offer(EARLY_MAX + 1, 0, 1)
    with pytest.raises(PeerError, match="too far ahead"):
        inbox.offer(2**62, 0, 1)
    assert len(inbox.early) == EARLY_MAX - 1


def test_an_acknowledgement_covers_everything_before_it():
    outbox: Outbox[int] = Outbox()
    for _ in range(4):
        number = outbox.number()
        outbox.keep(number, number, 1)
    assert outbox.acknowledge(3)
    assert list(outbox.waiting) == [4]
    assert not outbox.acknowledge(2)
    assert list(outbox.waiting) == [4]


def test_an_acknowledgement_of_what_was_never_sent_is_refused():
    outbox: Outbox[int] = Outbox()
    outbox.keep(outbox.number(), 1, 1)
    with pytest.raises(PeerError):
        outbox.acknowledge(2)
    assert list(outbox.waiting) == [1]


def test_what_is_acknowledged_already_is_not_kept():
    outbox: Outbox[int] = Outbox()
    number = outbox.number()
    outbox.acknowledge(number)
    outbox.keep(number, 1, 1)
    assert not outbox.waiting


def test_bytes_that_wait_for_a_missing_envelope_are_bounded():
    inbox: Inbox[int] = Inbox()
    half = EARLY_BYTES_MAX // 2
    assert inbox.offer(2, 0, half)
    assert inbox.offer(3, 0, half)
    with pytest.raises(PeerError, match="wait for envelope 1"):
        inbox.offer(4, 0, 1)
    assert inbox.offer(1, 0, half)  # the missing one always fits
    assert [inbox.next() for _ in range(4)] == [0, 0, 0, None]
    assert inbox.offer(4, 0, half)
    assert inbox.early_bytes == half


def test_bytes_of_all_peers_that_wait_are_bounded_and_each_has_room_of_its_own():
    """Bug: four members that work together took 335 MiB of an active party, and more took more."""
    busy = Busy()
    liars, honest = [Inbox[int](f"p{n}", busy) for n in range(50)], Inbox[int]("shop", busy)
    for liar in liars:
        for number in range(2, 6):
            liar.offer(number, 0, 2**24)
    assert busy.early_bytes <= EARLY_BYTES_ALL
    assert honest.offer(2, 0, EARLY_BYTES_EACH)
    assert honest.offer(3, 0, 1)  # dropped without a word: its sender may be honest
    assert list(honest.early) == [2]
    assert honest.offer(1, 0, 2**24)  # the next one always fits
    assert [honest.next() for _ in range(3)] == [0, 0, None]
    assert honest.offer(3, 0, EARLY_BYTES_EACH)  # and comes again
    assert honest.next() == 0
    assert busy.early_bytes == sum(liar.early_bytes for liar in liars)
