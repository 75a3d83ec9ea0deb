"""Noise, hashed ids and curve points: workers compute the bits of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.engine.port import LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.worker import Call
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.privacy.bounded_laws import label_noise
from hdpvfl_mq.privacy.mechanism import _points
from hdpvfl_mq.privacy.noise import ladder
from hdpvfl_mq.psi import dh_oprf, elements, oprf, order
from hdpvfl_mq.psi.packed import PackedIds

pytestmark = pytest.mark.seconds

MANY = 70_000  # more than one chunk of each
KEY = b"k" * 32


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    engine = ProcessEngine(2)
    yield engine
    engine.close()


def noise(engine: Any, count: int = MANY) -> Any:
    total = np.arange(count)
    ladder(5000.0).add_to(total, KEY, engine)
    return total


def responses(engine: Any) -> Any:
    places = np.arange(MANY) % 2
    return _points(places, label_noise(1.0), KEY, engine)


def ids() -> PackedIds:
    return PackedIds.of([f"person {number}".encode() for number in range(MANY)])


def hashed_ids(engine: Any) -> Any:
    return elements.hash_ids(ids(), KEY, engine=engine)


def hashed_chosen_ids(engine: Any) -> Any:
    positions = np.random.default_rng(0).permutation(MANY)
    return elements.hash_ids(ids().chosen(positions, np.empty), KEY, engine=engine)


def row_order(engine: Any) -> Any:
    return order.row_order(ids(), KEY, engine=engine)


def hashed_rows(engine: Any) -> Any:
    words = np.random.default_rng(1).integers(0, 2**63, (20_000, 10)).astype("<u8")
    return oprf.hash_rows(words[:, :8], words[:, 8:], engine)


def points(engine: Any) -> Any:
    few = elements.hash_ids([f"{n}".encode() for n in range(2500)], KEY)
    return dh_oprf._points(few, engine)


WORK = [noise, responses, hashed_ids, hashed_chosen_ids, row_order, hashed_rows, points]


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_workers_compute_the_bits_of_one_process(
    work: Callable[[Any], Any], engine: ProcessEngine
) -> None:
    handed_out = Noted(engine)
    assert np.array_equal(work(handed_out), work(LocalEngine()))
    assert handed_out.pieces > 1


def test_a_worker_killed_between_pieces_changes_no_bit(engine: ProcessEngine) -> None:
    killed = Noted(engine, kill=True)
    assert np.array_equal(noise(killed, 12 * MANY), noise(None, 12 * MANY))
    assert killed.pids
    assert not killed.pids & set(engine.pids)


class Noted:
    """An engine that counts pieces, and may kill both workers after the first one."""

    def __init__(self, engine: ProcessEngine, *, kill: bool = False) -> None:
        self.engine, self.kill = engine, kill
        self.pieces = 0
        self.pids: set[int] = set()

    def each(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        for result in self.engine.each(kernel, pieces):
            self.pieces += 1
            if self.kill and self.pieces == 1:
                self.pids = set(self.engine.pids)
                for pid in self.pids:
                    os.kill(pid, signal.SIGKILL)
            yield result


def test_pieces_are_taken_as_they_are_needed(engine: ProcessEngine) -> None:
    """A party's rows never pile up in front of its workers."""
    taken = []

    def pieces() -> Iterator[tuple[int]]:
        for number in range(1000):
            taken.append(number)
            yield (number,)

    results = engine.each(np.size, pieces())
    assert isinstance(results, Generator)
    for _ in range(3):
        next(results)
    assert len(taken) < 30
    results.close()
    assert list(engine.each(np.size, [(0,), (1,)])) == [1, 1]


def test_a_large_answer_and_a_large_job_do_not_wait_for_each_other(engine: ProcessEngine) -> None:
    """Both are larger than the buffers of a socket, so one side must always read."""
    large = np.ones(2**20)
    for result in engine.each(np.negative, ((large,) for _ in range(12))):
        assert result[0] == -1.0


def test_a_piece_is_never_shown(engine: ProcessEngine) -> None:
    secret = b"not to be shown"
    with pytest.raises(OperatorError) as told:
        list(engine.each(elements.hashed_part, [(secret, KEY), (secret, KEY)]))
    shown = str(told.value) + repr(told.value.__cause__) + repr(Call(elements.hashed_part, (KEY,)))
    assert "could not compute hashed_part" in shown
    assert "not to be shown" not in shown
    assert "kkk" not in shown
