"""One worker of the engine `processes`, and what it and its party's process say to each other.

It owns its mappings of the party's matrices. It ends when its party's process ends or closes the
connection. What it says about a failure is the kind of error, never its text.
"""

from __future__ import annotations

import mmap
import os
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from threadpoolctl import threadpool_limits

from hdpvfl_mq.engine.port import Job, Matrix
from hdpvfl_mq.engine.shared_rows import matrix_of


@dataclass(frozen=True, slots=True)
class Take:
    """Asks the worker to map a matrix; the descriptor follows."""

    number: int
    shape: tuple[int, int]
    dtype: str


@dataclass(frozen=True, slots=True)
class Drop:
    """A matrix that is needed no more."""

    number: int


@dataclass(frozen=True, slots=True)
class Compute:
    """A job on a matrix, or on none."""

    number: int | None
    job: Job


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed, by the kind of error."""

    kind: str


def serve(connection: Connection) -> None:
    """Answer jobs until the other side is gone."""
    held: dict[int, Matrix] = {}
    _threads = threadpool_limits(limits=1, user_api="blas")
    while True:
        try:
            asked = connection.recv()
            if isinstance(asked, Take):
                descriptor = recv_handle(connection)
                held[asked.number] = matrix_of(
                    descriptor, asked.shape, asked.dtype, mmap.ACCESS_READ
                )
                os.close(descriptor)
            elif isinstance(asked, Drop):
                held.pop(asked.number, None)
            else:
                connection.send(_answer(asked, held))
        except (EOFError, OSError):
            return


def _answer(asked: Compute, held: dict[int, Matrix]) -> list[Any] | Failure:
    try:
        return list(asked.job.results(None if asked.number is None else held[asked.number]))
    except Exception as failed:  # noqa: BLE001 - whatever it is, the party's process must hear of it
        return Failure(type(failed).__name__)


def main() -> None:
    """Serve on the descriptor that the command line names."""
    serve(Connection(int(sys.argv[1])))
    os._exit(0)  # nothing to write, nothing to wait for
