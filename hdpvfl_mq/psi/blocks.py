"""Long byte strings as blocks. Owns splitting, reassembly and the window; not the content.

A sender has at most `window` blocks on their way to one peer; the peer returns a credit for a block
if that lets another one go. So what a broker and a journal hold for one pair is bounded whatever
the size of the sets, and no credit arrives after the last block has left.
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
    """Blocks of a byte string; an empty one still takes one."""
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
        """Its blocks."""
        return block_count(self.size, self.block_bytes)

    def bounds(self, index: int) -> tuple[int, int]:
        """Where a block begins and ends."""
        start = index * self.block_bytes
        return start, min(start + self.block_bytes, self.size)


@dataclass(frozen=True)
class Sending(_String):
    """A byte string on its way out; blocks leave when there is room for them."""

    data: bytes | None = field(
        default=None, repr=False
    )  # None: the session reads it block by block
    next: int = 0
    credits: int = 0

    @property
    def allowed(self) -> int:
        """Blocks that may have left by now."""
        return min(self.window + self.credits, self.count)

    @property
    def is_sent(self) -> bool:
        """Whether the last block has left."""
        return self.next == self.count

    def credited(self, index: int) -> Sending | None:
        """With room for one more block since this one is in; None if no credit is due for it."""
        if self.allowed == self.count or index != self.credits:
            return None
        return replace(self, credits=self.credits + 1)


@dataclass(frozen=True)
class Receiving(_String):
    """A byte string on its way in."""

    parts: tuple[bytes, ...] = field(default=(), repr=False)
    next: int = 0

    def fits(self, index: int, last: bool, length: int) -> bool:
        """Whether a block of this index, mark and length is exactly the next one."""
        start, end = self.bounds(index)
        is_last = index == self.count - 1
        return index == self.next and last == is_last and length == end - start

    def with_part(self, payload: bytes) -> Receiving:
        """A block further."""
        return replace(self, parts=(*self.parts, payload), next=self.next + 1)

    @property
    def is_credit_due(self) -> bool:
        """Whether the sender waits for a credit for the block that came last."""
        return self.next - 1 + self.window < self.count
