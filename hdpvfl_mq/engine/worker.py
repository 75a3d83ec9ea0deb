"""One worker of the engine `processes`, and what it and its party's process say to each other.

It owns its mappings of the party's matrices. It ends when its party's process ends or closes the
connection. What it says about a failure is the kind of error, never its text.
"""

from __future__ import annotations

import mmap
import os
import sys
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from queue import Queue
from threading import Thread
from typing import Any

from hdpvfl_mq.engine.channel import receive, send
from hdpvfl_mq.engine.core_dumps import forbid_core_dumps
from hdpvfl_mq.engine.no_pandas import NoPandas
from hdpvfl_mq.engine.port import Job, Kernel, Matrix, Piece, name_of
from hdpvfl_mq.engine.shared_rows import matrix_of
from hdpvfl_mq.engine.threads import pin_threads


@dataclass(frozen=True, slots=True)
class Take:
    """Asks the worker to map a matrix; the descriptor follows."""

    number: int
    shape: tuple[int, int]
    dtype: str
    start: int


@dataclass(frozen=True, slots=True)
class Drop:
    """A matrix that is needed no more."""

    number: int


@dataclass(frozen=True, slots=True)
class Compute:
    """A job on a matrix."""

    number: int
    job: Job

    @property
    def name(self) -> str:
        """The kernel's name."""
        return name_of(self.job.kernel)


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel on one piece; its text shows no value."""

    kernel: Kernel
    piece: Piece = field(repr=False)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return name_of(self.kernel)


Asked = Compute | Call


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed, by the kind of error."""

    kind: str


def serve(connection: Connection) -> None:
    """Answer jobs until the other side is gone.

    A thread reads, so that the other side can send the next job while this one is computed, and
    never waits to send while this side waits to answer.
    """
    asked: Queue[Asked | _Taken | Drop | None] = Queue()
    Thread(target=_read, args=(connection, asked), daemon=True).start()
    held: dict[int, Matrix] = {}
    _threads = pin_threads()
    while (each := asked.get()) is not None:
        if isinstance(each, _Taken):
            held[each.number] = each.X
        elif isinstance(each, Drop):
            held.pop(each.number, None)
        else:
            try:
                send(connection, _answer(each, held))
            except OSError:
                return


@dataclass(frozen=True, slots=True)
class _Taken:
    """A matrix that this worker has mapped."""

    number: int
    X: Matrix = field(repr=False)


def _read(connection: Connection, asked: Queue[Asked | _Taken | Drop | None]) -> None:
    try:
        while True:
            each = receive(connection)
            if isinstance(each, Take):
                descriptor = recv_handle(connection)
                X = matrix_of(descriptor, each.shape, each.dtype, mmap.ACCESS_READ, each.start)
                os.close(descriptor)
                each = _Taken(each.number, X)
            asked.put(each)
    except (EOFError, OSError, MemoryError):
        pass  # the party's process is gone, or gets another worker
    finally:
        asked.put(None)  # else it would wait for an answer for ever


def _answer(asked: Asked, held: dict[int, Matrix]) -> list[Any] | Failure:
    try:
        if isinstance(asked, Call):
            return [asked.kernel(*asked.piece)]
        return list(asked.job.results(held[asked.number]))
    except Exception as failed:  # noqa: BLE001 - whatever it is, the party's process must hear of it
        return Failure(type(failed).__name__)


def main() -> None:
    """Serve on the descriptor that the command line names."""
    forbid_core_dumps()  # rows, noise keys and un-noised values are in its memory
    sys.meta_path.insert(0, NoPandas())
    serve(Connection(int(sys.argv[1])))
    os._exit(0)  # nothing to write, nothing to wait for
