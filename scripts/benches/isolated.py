"""Run one part of the bench in a process of its own, with a time limit.

It owns the process and the pipe its rows come through. A part that fails or takes too long loses
only the rows it had not sent yet; the sentence says why, and the next part runs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType

from scripts.benches.row import Row

_CONTEXT = multiprocessing.get_context("fork")
CLOSING_S = 10.0
Part = Callable[[], Iterable[Row]]
Sent = Row | str | None  # a row, why the part failed, or its end


def rows_of(part: Part, limit_s: float) -> Iterator[Row | str]:
    """The rows of a part as they are measured; a text at the end says why it did not finish."""
    here, there = _CONTEXT.Pipe(duplex=False)
    child = _CONTEXT.Process(target=_run, args=(part, there))
    child.start()
    there.close()
    deadline = time.monotonic() + limit_s
    try:
        while True:
            sent = _next(here, deadline, limit_s)
            if sent is None:
                return
            yield sent
            if isinstance(sent, str):
                return
    finally:
        here.close()
        _end(child)


def _next(pipe: Connection, deadline: float, limit_s: float) -> Sent:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        return f"stopped after {limit_s:.0f} s"
    try:
        sent: Sent = pipe.recv()
    except EOFError:
        return "its process ended without a word"
    return sent


def _run(part: Part, pipe: Connection) -> None:
    os.setsid()
    signal.signal(signal.SIGTERM, _leave)
    try:
        for row in part():
            pipe.send(row)
        pipe.send(None)
    except Exception as broken:  # noqa: BLE001 - the other parts are still worth their table
        pipe.send(f"failed: {type(broken).__name__}: {broken}"[:300])


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(1)  # so that what the part started is ended by its own `finally`


def _end(child: multiprocessing.process.BaseProcess) -> None:
    if child.is_alive():
        child.join(1.0)
    if child.is_alive():
        child.terminate()
        child.join(CLOSING_S)
    if child.pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.join()
