"""The exchange of parts: what a peer asks for is sent once, and who serves none is named."""

from __future__ import annotations

import pytest

from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.parts import PROBE_FROM, UNSERVED_MAX, PartExchange
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.pacing import Pacing
from hdpvfl_mq.wire import parts
from schemas.delivery import MAX_PARTS_ASKED, Part, PartRequest
from schemas.tensor import Tensor


@pytest.fixture
def serving(monkeypatch):
    """An exchange that has an array in 100 parts, and the envelope that lists them."""
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    array = bytes(range(100))
    listed = parts.PartList.of_array(array)
    journal = Journal(":memory:", run="run", party="bank")
    journal.keep_parts((listed.digests[n], listed.cut(array, n)) for n in range(len(listed)))
    yield PartExchange(journal), (b"", b"", b"", *listed.frames)
    journal.close()


@pytest.fixture
def asked(serving):
    """Numbers of the parts that leave after requests of (sequence number, part numbers)."""
    exchange, frames = serving

    def numbers(*requests):
        for sequence, wanted in requests:
            request = PartRequest(sequence=sequence, numbers=tuple(wanted))
            exchange.want("shop", request, frames)
        return [part.number for _, part in exchange.served()]

    return numbers


def test_two_requests_of_one_turn_are_both_served(asked):
    assert sorted(asked((1, (0, 1)), (1, (1, 2)))) == [0, 1, 2]
    assert asked() == []


def test_a_request_for_a_later_envelope_replaces_an_earlier_one(asked):
    assert asked((1, (0, 1)), (2, (5,))) == [5]


def test_many_requests_of_one_turn_are_served_up_to_the_limit_newest_first(asked):
    served = asked(*((1, range(n, n + 4)) for n in range(0, 80, 4)))
    assert len(served) == MAX_PARTS_ASKED
    assert served[:4] == [76, 77, 78, 79]


def test_peers_take_turns_and_each_part_is_read_when_it_is_taken(serving, monkeypatch):
    """Bug: all that a crowd asked for was in memory at once, 16 MiB for each peer."""
    exchange, frames = serving
    read, part = [], exchange._store.part

    def noted(digest):
        read.append(digest)
        return part(digest)

    monkeypatch.setattr(exchange._store, "part", noted)
    for peer, numbers in (("shop", (4, 5, 6)), ("telco", (7,))):
        exchange.want(peer, PartRequest(sequence=1, numbers=numbers), frames)
    served = exchange.served()
    assert read == []
    assert [(peer, each.number) for peer, each in (next(served), next(served))] == [
        ("shop", 4),
        ("telco", 7),
    ]
    assert len(read) == 2
    assert [each.number for _, each in served] == [5, 6]


@pytest.fixture
def waiting(monkeypatch):
    """An exchange that waits for the parts of one peer's envelope, and a way to serve them."""
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    array = bytes(range(100))
    listed = parts.PartList.of_array(array)
    journal = Journal(":memory:", run="run", party="bank")
    exchange = PartExchange(journal)
    assert not exchange.expect("shop", 1, (b"", b"", b"", *listed.frames))

    def serve(number):
        data = array[number : number + 1]
        tensor = Tensor(dtype="|u1", shape=(1,), data=data)
        exchange.take("shop", Part(sequence=1, number=number, tensor=tensor))

    yield exchange, serve
    journal.close()


def test_a_peer_that_speaks_but_serves_no_part_is_named_after_many_requests(waiting):
    exchange, serve = waiting
    list(exchange.requests())
    for _ in range(UNSERVED_MAX - 1):
        exchange.heard("shop")
        assert exchange.unserved() == ()
    exchange.heard("shop")
    assert exchange.is_served("shop")
    assert exchange.unserved() == ("shop",)
    assert not exchange.is_served("shop")
    serve(0)  # it goes on: what was noted is over
    assert exchange.is_served("shop")
    assert exchange.unserved() == ()


def test_a_peer_that_serves_no_part_is_late_within_fifteen_seconds(waiting):
    """Bug: nobody was told for whom a run stood still, until it ended after minutes."""
    exchange, serve = waiting
    pacing, asked_s = Pacing(), 0.0
    pacing._after_parts(Turn((), (), None, is_asking=True), 0.0)
    while not exchange.late:
        exchange.heard("shop")
        asked_s = pacing.next()
        assert pacing.due(asked_s).ask
        exchange.unserved()
    assert asked_s < 15.0
    list(exchange.requests(again=True))
    serve(0)
    exchange.unserved()
    assert exchange.late == ()


def test_a_silent_peer_may_be_restarting(waiting):
    exchange, _ = waiting
    for _ in range(3 * UNSERVED_MAX):
        assert exchange.unserved() == ()


def test_later_requests_ask_for_one_part_and_still_take_those_on_their_way(waiting):
    exchange, serve = waiting
    (_, first), *_ = exchange.requests()
    assert len(first.numbers) == MAX_PARTS_ASKED
    for _ in range(PROBE_FROM):
        exchange.heard("shop")
        exchange.unserved()
    ((_, probe),) = exchange.requests(again=True)
    assert probe.numbers == first.numbers[:1]
    serve(first.numbers[5])
    exchange.unserved()
    ((_, again),) = exchange.requests(again=True)
    assert len(again.numbers) == MAX_PARTS_ASKED
