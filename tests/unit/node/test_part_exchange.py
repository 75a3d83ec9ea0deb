"""The exchange of parts: what a peer asks for in one turn is sent, once and within the limit."""

from __future__ import annotations

import pytest

from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.parts import PartExchange
from hdpvfl_mq.wire import parts
from schemas.messages import MAX_PARTS_ASKED, PartRequest


@pytest.fixture
def asked(monkeypatch):
    """Numbers of the parts that leave after requests of (sequence number, part numbers)."""
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    array = bytes(range(100))
    listed = parts.PartList.of_array(array)
    journal = Journal(":memory:", run="run", party="bank")
    journal.keep_parts((listed.digests[n], listed.cut(array, n)) for n in range(len(listed)))
    exchange = PartExchange(journal)

    def numbers(*requests):
        for sequence, wanted in requests:
            request = PartRequest(sequence=sequence, numbers=tuple(wanted))
            exchange.want("shop", request, (b"", b"", b"", *listed.frames))
        return [part.number for _, part in exchange.served()]

    yield numbers
    journal.close()


def test_two_requests_of_one_turn_are_both_served(asked):
    assert sorted(asked((1, (0, 1)), (1, (1, 2)))) == [0, 1, 2]
    assert asked() == []


def test_a_request_for_a_later_envelope_replaces_an_earlier_one(asked):
    assert asked((1, (0, 1)), (2, (5,))) == [5]


def test_many_requests_of_one_turn_are_served_up_to_the_limit_newest_first(asked):
    served = asked(*((1, range(n, n + 4)) for n in range(0, 80, 4)))
    assert len(served) == MAX_PARTS_ASKED
    assert served[:4] == [76, 77, 78, 79]
