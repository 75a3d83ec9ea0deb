"""Long byte strings as blocks. Owns splitting, reassembly and the window; not the content.

A sender has at most `window` blocks on their way to one peer; the peer returns a credit for a block
if that lets another one go. So what a broker and a journal hold for one pair is bounded whatever
the size of the sets, and no credit arrives after the last block has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.arrays.chunked import Room
from hdpvfl_mq.psi.stream import Octets


@dataclass(frozen=True)
class Outgoing:
    """One message of entity resolution, ready for the transport."""

    to: tuple[str, ...]
    stage: str
    index: int
    last: bool
    payload: bytes
    meta: tuple[int, ...] = ()


def read_slice(data: bytes, start: int, stop: int) -> bytes:
    """The reader of a string that is there already; `partial` makes it a `Sending.read`."""
    return data[start:stop]


def block_count(size: int, block_bytes: int) -> int:
    """Blocks of a byte string; an empty one still takes one."""
    return max(1, -(-size // block_bytes))


@dataclass
class Sending:
    """A byte string on its way out; blocks are made when there is room for them."""

    stage: str
    bucket: int
    size: int
    read: Callable[[int, int], bytes]
    block_bytes: int
    window: int

    def __post_init__(self) -> None:
        self._count = block_count(self.size, self.block_bytes)
        self._next = 0
        self._allowed = min(self.window, self._count)

    @property
    def is_sent(self) -> bool:
        """Whether the last block has left."""
        return self._next == self._count

    def credit(self, index: int) -> bool:
        """Make room for one more block since this one is in; False if none is due for it."""
        if self._allowed == self._count or index != self._allowed - self.window:
            return False
        self._allowed += 1
        return True

    def ready(self) -> list[tuple[int, bool, bytes]]:
        """The blocks that may leave now: (index, last, payload)."""
        blocks = []
        for index in range(self._next, self._allowed):
            start = index * self.block_bytes
            payload = self.read(start, min(start + self.block_bytes, self.size))
            blocks.append((index, index == self._count - 1, payload))
        self._next = self._allowed
        return blocks


@dataclass
class Receiving:
    """A byte string of known size on its way in."""

    stage: str
    bucket: int
    size: int
    block_bytes: int
    window: int
    room: Room = np.empty

    def __post_init__(self) -> None:
        self._count = block_count(self.size, self.block_bytes)
        self._data: Octets = self.room((self.size,), np.uint8)
        self._next = 0

    def fits(self, index: int, last: bool, length: int) -> bool:
        """Whether a block of this index, mark and length is exactly the next one."""
        expected = min(self.block_bytes, self.size - index * self.block_bytes)
        is_last = index == self._count - 1
        return index == self._next and last == is_last and length == expected

    def append(self, payload: bytes) -> bool:
        """Take a block that fits; True if the sender waits for a credit."""
        self._put(payload)
        self._next += 1
        return self._next - 1 + self.window < self._count

    def whole(self, last_payload: bytes) -> Octets:
        """The string with its last block, which is not taken yet: another one may replace it."""
        self._put(last_payload)
        return self._data

    def _put(self, payload: bytes) -> None:
        start = self._next * self.block_bytes
        self._data[start : start + len(payload)] = np.frombuffer(payload, dtype=np.uint8)
