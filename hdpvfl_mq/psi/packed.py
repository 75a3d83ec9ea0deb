"""Many ids as one string of bytes.

It owns where each id begins and ends; it knows no normal form. A list of a million `bytes` takes 60
bytes per id besides the text, and can only be in memory. Here ids are slices of one array, which
may be mapped from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import CHUNK_ROWS, Allocate, Growing, chunks, gather
from hdpvfl_mq.engine.port import Engine, Kernel, LocalEngine
from hdpvfl_mq.psi.stream import Octets

_LENGTH_BYTES = 4


class PackedIds(Sequence[bytes]):
    """Ids as a sequence; a slice is copied into a list, so take small slices."""

    def __init__(self, text: Octets, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._text, self._starts, self._ends = text, starts, ends

    @classmethod
    def of(cls, ids: Sequence[bytes]) -> PackedIds:
        """These ids, in memory."""
        packing = Packing(np.empty)
        packing.add(ids)
        return packing.packed

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return self._cut(self._starts[place], self._ends[place])
        return self._text[self._starts[place] : self._ends[place]].tobytes()

    def at(self, positions: NDArray[np.integer[Any]]) -> list[bytes]:
        """The ids at a few positions."""
        return self._cut(self._starts[positions], self._ends[positions])

    def chosen(self, positions: NDArray[np.integer[Any]], allocate: Allocate) -> PackedIds:
        """The ids at these positions, in this order; their text is shared."""
        starts, ends = (
            gather(bounds, positions, allocate) for bounds in (self._starts, self._ends)
        )
        return PackedIds(self._text, starts, ends)

    def part(self, part: slice) -> PackedIds:
        """The ids of a slice with a text of their own, to hand to a worker."""
        starts, ends = self._starts[part], self._ends[part]
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(ends - starts)])
        if len(starts) and (starts[1:] == ends[:-1]).all():
            text = np.array(self._text[starts[0] : ends[-1]])
        else:
            letters = np.arange(bounds[-1])
            text = self._text[letters + np.repeat(starts - bounds[:-1], ends - starts)]
        return PackedIds(text, bounds[:-1], bounds[1:])

    def with_lengths(self, part: slice) -> bytes:
        """The ids of a small slice, each after its length in four bytes, in one string."""
        starts, lengths = self._starts[part], self._ends[part] - self._starts[part]
        before = np.cumsum(lengths) - lengths  # of the text of a slice
        heads = before + _LENGTH_BYTES * np.arange(len(lengths))
        letters = np.arange(int(lengths.sum()))
        joined = np.empty(len(letters) + _LENGTH_BYTES * len(lengths), dtype=np.uint8)
        sizes = lengths.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES)
        joined[heads[:, None] + np.arange(_LENGTH_BYTES)] = sizes
        places = letters + np.repeat(heads + _LENGTH_BYTES - before, lengths)
        joined[places] = self._text[letters + np.repeat(starts - before, lengths)]
        return joined.tobytes()

    def _cut(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[bytes]:
        if len(starts) and (starts[1:] == ends[:-1]).all():  # consecutive ids: read at once
            first, text = starts[0], self._text[starts[0] : ends[-1]].tobytes()
            bounds = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
            return [text[start:end] for start, end in bounds]
        view, bounds = self._text.data, zip(starts.tolist(), ends.tolist(), strict=True)
        return [view[start:end].tobytes() for start, end in bounds]

    def __repr__(self) -> str:
        return f"<PackedIds of {len(self)} ids>"


class Packing:
    """Builds one string from ids."""

    def __init__(self, allocate: Allocate) -> None:
        self._text, self._bounds = Growing(np.uint8, allocate), Growing(np.int64, allocate)
        self._bounds.add(np.zeros(1, dtype=np.int64))

    def add(self, ids: Sequence[bytes]) -> None:
        """Append these ids."""
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        self._bounds.add(len(self._text.filled) + np.cumsum(lengths))
        self._text.add(np.frombuffer(b"".join(ids), dtype=np.uint8))

    @property
    def packed(self) -> PackedIds:
        """All ids added so far."""
        bounds = self._bounds.filled
        return PackedIds(self._text.filled, bounds[:-1], bounds[1:])


def each_part(
    kernel: Kernel, ids: Sequence[bytes], key: bytes, engine: Engine | None
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """A kernel of the ids and a key, for parts of fixed size, each with its slice."""
    packed = ids if isinstance(ids, PackedIds) else PackedIds.of(ids)
    parts = list(chunks(len(packed), CHUNK_ROWS))
    pieces = ((packed.part(part), key) for part in parts)
    return zip(parts, (engine or LocalEngine()).each(kernel, pieces), strict=True)
