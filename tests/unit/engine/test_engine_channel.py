"""Messages arrive as they were sent, and a side that is gone is noticed in the middle of one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.engine import channel

LARGE = np.arange(300_000.0)  # more than a socket holds


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


VALUES: dict[str, list[Any]] = {
    "small": ["a text", np.arange(3), None],
    "large": [LARGE],
    "mixed": [LARGE, np.arange(5), LARGE.astype(np.float32)],
    "more than a call takes": [np.full(2100, float(number)) for number in range(1200)],
    "part of a vector": [LARGE[7:200_000]],
    "every other one": [LARGE[::2]],
    "a matrix, and by columns": [LARGE.reshape(1000, 300), LARGE.reshape(1000, 300).T],
    "of another machine": [LARGE.astype(">f8")],
    "deep in it": [{"a": (LARGE, [LARGE[:5]])}],
    "nothing in it": [np.empty((0, 3))],
    "text": [np.array(["a", "long enough to be stored apart"] * 9000, np.dtypes.StringDType())],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_message_arrives_as_it_was_sent(name: str, ends: tuple[Connection, Connection]) -> None:
    ours, theirs = ends
    sending = Thread(target=channel.send, args=(ours, ("words", VALUES[name])))
    sending.start()
    found = channel.receive(theirs)
    sending.join()
    np.testing.assert_equal(found, ("words", VALUES[name]))


def test_numbers_arrive_at_addresses_that_are_multiples_of_their_size(ends) -> None:
    ours, theirs = ends
    sending = Thread(target=channel.send, args=(ours, (b"odd", [LARGE, LARGE[1:]])))
    sending.start()
    _, found = channel.receive(theirs)
    sending.join()
    assert all(each.flags.aligned and each.flags.writeable for each in found)


def test_a_side_that_is_gone_in_the_middle_of_a_message_is_noticed(ends, monkeypatch) -> None:
    ours, theirs = ends
    written = os.writev

    def half(descriptor: int, views: list[memoryview]) -> int:
        written(descriptor, [views[0][:1000]])
        raise BrokenPipeError

    monkeypatch.setattr(os, "writev", half)
    with pytest.raises(OSError, match=r"^$"):
        channel.send(ours, [LARGE])
    ours.close()
    with pytest.raises(EOFError):
        channel.receive(theirs)
