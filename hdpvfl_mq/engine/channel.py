"""Messages between a party's process and a worker: a few words, then large arrays as they lie.

It owns the form of a message; it knows no job. A large array is copied into the socket and out of
it, and not packed with the words as well, which took longer than many a product with rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_LARGE_BYTES = 2**14
_VIEWS = 512  # that one system call takes; Linux takes 1024


@dataclass(frozen=True, slots=True)
class _Follows:
    """The place of an array whose bytes follow the words."""

    shape: tuple[int, ...]
    dtype: str


def send(connection: Connection, words: Any, values: Sequence[Any] = ()) -> None:
    """Send words and values; OSError if the other side is gone."""
    told = [_Follows(each.shape, each.dtype.str) if _is_large(each) else each for each in values]
    connection.send((words, told))
    views = [memoryview(each).cast("B") for each in values if _is_large(each)]
    while views:
        views = _rest(views, os.writev(connection.fileno(), views[:_VIEWS]))


def receive(connection: Connection) -> tuple[Any, list[Any]]:
    """The next words and values; EOFError or OSError if the other side is gone."""
    words, told = connection.recv()
    values, views = list(told), list[memoryview]()
    for place, each in enumerate(told):
        if isinstance(each, _Follows):
            values[place] = np.empty(each.shape, each.dtype)
            views.append(memoryview(values[place]).cast("B"))
    while views:
        count = os.readv(connection.fileno(), views[:_VIEWS])
        if count == 0:
            raise EOFError
        views = _rest(views, count)
    return words, values


def _is_large(value: Any) -> bool:
    """Whether a value is an array of plain numbers, in one piece, that is worth a copy less."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind in "biuf"
        and value.dtype.isnative
        and value.flags.c_contiguous
        and value.nbytes >= _LARGE_BYTES
    )


def _rest(views: list[memoryview], done: int) -> list[memoryview]:
    """What is left of these bytes after the first ones."""
    place = 0
    while place < len(views) and done >= views[place].nbytes:
        done -= views[place].nbytes
        place += 1
    return [views[place][done:], *views[place + 1 :]] if place < len(views) else []
