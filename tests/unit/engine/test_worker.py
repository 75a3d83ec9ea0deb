"""A worker keeps its memory to itself, and ends rather than leave its party waiting."""

from __future__ import annotations

import sys
from queue import Queue

import pytest

from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.worker import _read
from tests.unit.engine.core_dumps import dumps


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such request")
def test_a_worker_leaves_no_core_dump_and_no_debugger_attaches() -> None:
    """Bug: the party's process forbids both, but a program that it starts does not inherit that."""
    engine = ProcessEngine(2)
    try:
        assert list(engine.each(dumps, [(0,), (1,)])) == [(0, (0, 0))] * 2
    finally:
        engine.close()


class FullConnection:
    """A connection over which comes more than fits into memory."""

    def recv(self) -> None:
        raise MemoryError


def test_a_worker_that_cannot_read_a_job_ends() -> None:
    """Bug: its reading thread died, the worker waited for a job and the party for an answer."""
    asked: Queue = Queue()
    _read(FullConnection(), asked)
    assert asked.get_nowait() is None
