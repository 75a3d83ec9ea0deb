"""Messages between a party's process and a worker: large arrays travel as they lie in memory.

It owns the form of a message; it knows no job. A large array anywhere in a message is copied into
the socket and out of it, and not packed with the words as well, which took longer than many a
product with rows.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_LARGE_BYTES = 2**14
_VIEWS = 512  # that one system call takes; Linux takes 1024


def send(connection: Connection, message: Any) -> None:
    """Send a message; OSError if the other side is gone."""
    views: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes >= _LARGE_BYTES:
            views.append(view)
        return view.nbytes < _LARGE_BYTES

    words = pickle.dumps(message, protocol=5, buffer_callback=stays)
    connection.send((words, [view.nbytes for view in views]))
    while views:
        views = _rest(views, os.writev(connection.fileno(), views[:_VIEWS]))


def receive(connection: Connection) -> Any:
    """The next message; EOFError or OSError if the other side is gone."""
    words, sizes = connection.recv()
    buffers = [np.empty(size, np.uint8) for size in sizes]
    views = [buffer.data for buffer in buffers]
    while views:
        count = os.readv(connection.fileno(), views[:_VIEWS])
        if count == 0:
            raise EOFError
        views = _rest(views, count)
    return pickle.loads(words, buffers=buffers)  # noqa: S301 - from a process of this program


def _rest(views: list[memoryview], done: int) -> list[memoryview]:
    """What is left of these bytes after the first ones."""
    place = 0
    while place < len(views) and done >= views[place].nbytes:
        done -= views[place].nbytes
        place += 1
    return [views[place][done:], *views[place + 1 :]] if place < len(views) else []
