"""Long byte strings as blocks.

It owns splitting, reassembly and the window; it does not know the content. A sender has at most
`window` blocks in flight to one peer; the peer returns a credit for a block if that lets the sender
send another. So a broker and a journal hold a bounded number of blocks for one pair, whatever the
size of the sets, and no credit arrives after the last block is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Outgoing:
    """One message of entity resolution, ready for the transport."""

    to: tuple[str, ...]
    stage: str
    index: int
    last: bool
    payload: bytes
    meta: tuple[int, ...] = ()


def block_count(size: int, block_bytes: int) -> int:
    """Number of blocks of a byte string; an empty string takes one block."""
    return max(1, -(-size // block_bytes))


@dataclass(frozen=True)
class _String:
    """A byte string of known size between two parties."""

    stage: str
    bucket: int
    size: int
    block_bytes: int
    window: int

    @property
    def count(self) -> int:
        """Number of blocks."""
        return block_count(self.size, self.block_bytes)

    def bounds(self, index: int) -> tuple[int, int]:
        """Where a block begins and ends."""
        start = index * self.block_bytes
        return start, min(start + self.block_bytes, self.size)


@dataclass(frozen=True)
class Sending(_String):
    """An outgoing byte string; blocks are sent when the window has room."""

    data: bytes | None = field(
        default=None, repr=False
    )  # None: the session reads it block by block
    next: int = 0
    credits: int = 0

    @property
    def allowed(self) -> int:
        """Number of blocks that the window allows to have been sent."""
        return min(self.window + self.credits, self.count)

    @property
    def is_sent(self) -> bool:
        """Whether the last block is sent."""
        return self.next == self.count

    def credited(self, index: int) -> Sending | None:
        """After a credit for this block, with room for one more; None if no credit is due."""
        if self.allowed == self.count or index != self.credits:
            return None
        return replace(self, credits=self.credits + 1)


@dataclass(frozen=True)
class Receiving(_String):
    """An incoming byte string."""

    parts: tuple[bytes, ...] = field(default=(), repr=False)
    next: int = 0

    def fits(self, index: int, last: bool, length: int) -> bool:
        """Whether a block with this index, `last` mark and length is exactly the next one."""
        start, end = self.bounds(index)
        is_last = index == self.count - 1
        return index == self.next and last == is_last and length == end - start

    def with_part(self, payload: bytes) -> Receiving:
        """The string after one more block."""
        return replace(self, parts=(*self.parts, payload), next=self.next + 1)

    @property
    def is_credit_due(self) -> bool:
        """Whether the sender waits for a credit for the latest block."""
        return self.next - 1 + self.window < self.count
