"""Arrays with an entry for every row: how they are allocated, and how they are read in chunks.

It owns chunks, gathering and grouping; it knows no file and no meaning of an entry. Arrays are
allocated in memory by numpy, or in files that a party maps. Every function holds only a few chunks
itself, so with mapped arrays memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Allocates an array of this shape and dtype with arbitrary contents.
Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]
Positions = NDArray[np.int64]

CHUNK_ROWS = 1 << 16
OBJECT_ROWS = 1 << 13  # where each row becomes a Python object: a third faster than large chunks
_GROWS_FROM = 1 << 12


def chunks(rows: int, size: int = CHUNK_ROWS) -> Iterator[slice]:
    """Consecutive slices of `size` rows; none is empty."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def gather(
    values: NDArray[Any], positions: NDArray[np.integer[Any]], allocate: Allocate
) -> NDArray[Any]:
    """values[positions], for vectors."""
    taken = allocate((len(positions),), values.dtype)
    for part in chunks(len(positions)):
        taken[part] = values[positions[part]]
    return taken


def marks(rows: int, allocate: Allocate) -> NDArray[np.bool_]:
    """A mark for each row, none of them set."""
    unset = allocate((rows,), np.bool_)
    unset[:] = False
    return unset


def marked(mask: NDArray[np.bool_], allocate: Allocate) -> Positions:
    """Where marks are set, ascending."""
    found = allocate((int(np.count_nonzero(mask)),), np.int64)
    filled = 0
    for part in chunks(len(mask)):
        here = np.flatnonzero(mask[part])
        found[filled : filled + len(here)] = here + part.start
        filled += len(here)
    return found


class Growing:
    """A vector of unknown final length; its capacity doubles as needed."""

    def __init__(self, dtype: Any, allocate: Allocate) -> None:
        self._allocate = allocate
        self._held = allocate((_GROWS_FROM,), dtype)
        self._length = 0

    @property
    def filled(self) -> NDArray[Any]:
        """The values added so far."""
        return self._held[: self._length]

    def add(self, values: NDArray[Any]) -> None:
        """Append these values."""
        needed = self._length + len(values)
        if needed > len(self._held):
            larger = self._allocate((max(needed, 2 * len(self._held)),), self._held.dtype)
            larger[: self._length] = self.filled
            self._held = larger
        self._held[self._length : needed] = values
        self._length = needed

    def __repr__(self) -> str:
        return f"<Growing of {self._length} entries>"


@dataclass(frozen=True)
class Groups:
    """Positions by group number, ascending within each group."""

    positions: Positions = field(repr=False)
    bounds: Positions = field(repr=False)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, number: int) -> Positions:
        return self.positions[self.bounds[number] : self.bounds[number + 1]]

    def __iter__(self) -> Iterator[Positions]:
        return map(self.__getitem__, range(len(self)))


def group(
    number_of: Callable[[slice], NDArray[Any]], rows: int, *, groups: int, allocate: Allocate
) -> Groups:
    """Group rows by the number that `number_of` gives for each row of a slice; called twice.

    It is a counting sort, chunk by chunk, so it never sorts all rows in memory.
    """
    counts = np.zeros(groups, dtype=np.int64)
    for part in chunks(rows):
        counts += np.bincount(number_of(part).astype(np.int64), minlength=groups)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    positions, free = allocate((rows,), np.int64), bounds[:-1].copy()
    narrow = np.min_scalar_type(groups)  # numpy sorts 16 bits by radix
    for part in chunks(rows):
        numbers = number_of(part).astype(narrow)
        order = np.argsort(numbers, kind="stable")
        positions[take_places(free, np.bincount(numbers, minlength=groups))] = order + part.start
    return Groups(positions, bounds)


def take_places(free: Positions, counts: NDArray[np.integer[Any]]) -> Positions:
    """The next `counts` free places of each group, group after group; advances `free`."""
    first = np.cumsum(counts) - counts
    places: Positions = np.arange(counts.sum()) + np.repeat(free - first, counts)
    free += counts
    return places
