"""A large array in parts: the signed envelope lists their digests, the parts travel separately.

It owns when an array is large, how it is cut and how the list is written and checked; it knows no
store and no peer. In place of the array frame an envelope has two frames: the digests, 32 bytes
each in the order of the parts, and the sizes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.canonical import pack, unpack
from schemas.base import Strict
from schemas.envelope import IN_PARTS_FRAMES, MAX_ARRAY_BYTES, MAX_PART_BYTES, MAX_PARTS

LARGE_BYTES = MAX_ARRAY_BYTES  # an array up to this size travels in its envelope
PART_BYTES = 2**20
DIGEST_BYTES = 32
_DOMAIN = b"hdpvfl-mq part 1\x00"
_SIZES_MAX_BYTES = 64

Buffer = bytes | memoryview


class Sizes(Strict):
    """Bytes of the whole array, and of every part but the last."""

    bytes: Annotated[int, Field(gt=0, le=MAX_PARTS * MAX_PART_BYTES)]
    part_bytes: Annotated[int, Field(gt=0, le=MAX_PART_BYTES)]


def part_digest(part: Buffer) -> bytes:
    """The digest that an envelope lists for a part."""
    state = hashlib.sha256(_DOMAIN)
    state.update(part)
    return state.digest()


def is_large(array: Buffer) -> bool:
    """Whether an array travels in parts."""
    return len(array) > LARGE_BYTES


@dataclass(frozen=True)
class PartList:
    """The parts of one array, as its envelope lists them."""

    sizes: Sizes
    digests: tuple[bytes, ...]

    @classmethod
    def of_array(cls, array: Buffer) -> PartList:
        """The list of an array's parts."""
        sizes = Sizes(bytes=len(array), part_bytes=PART_BYTES)
        empty = cls(sizes, (b"",) * _count(sizes))
        return cls(sizes, tuple(part_digest(empty.cut(array, n)) for n in range(len(empty))))

    @classmethod
    def of_frames(cls, frames: tuple[bytes, ...]) -> PartList:
        """The list in an envelope; PeerError if it is not one."""
        if len(frames) != IN_PARTS_FRAMES:
            raise PeerError("the envelope lists no parts")
        try:
            sizes = Sizes.model_validate(unpack(frames[4], max_bytes=_SIZES_MAX_BYTES))
        except ValidationError:
            raise PeerError("the sizes of parts break their schema") from None
        if sizes.part_bytes < PART_BYTES:  # a list of many small parts costs its reader memory
            raise PeerError(f"parts of {sizes.part_bytes} bytes: the minimum is {PART_BYTES}")
        count = _count(sizes)
        if count > MAX_PARTS or len(frames[3]) != count * DIGEST_BYTES:
            raise PeerError(f"expected {count} digests of parts")
        starts = range(0, count * DIGEST_BYTES, DIGEST_BYTES)
        return cls(sizes, tuple(frames[3][at : at + DIGEST_BYTES] for at in starts))

    @property
    def frames(self) -> tuple[bytes, bytes]:
        """The two frames that stand for the array."""
        return b"".join(self.digests), pack(self.sizes.model_dump())

    def __len__(self) -> int:
        return len(self.digests)

    def length(self, number: int) -> int:
        """Bytes of one part."""
        start = number * self.sizes.part_bytes
        return min(self.sizes.part_bytes, self.sizes.bytes - start)

    def cut(self, array: Buffer, number: int) -> memoryview:
        """One part of the array, without a copy."""
        start = number * self.sizes.part_bytes
        return memoryview(array)[start : start + self.length(number)]

    def check(self, number: int, part: Buffer) -> None:
        """PeerError unless this is the part that the list names."""
        if number >= len(self) or part_digest(part) != self.digests[number]:
            raise PeerError(f"part {number} is not one of those that its envelope lists")
        self.check_length(number, part)

    def check_length(self, number: int, part: Buffer) -> None:
        """PeerError unless a part has the size that the list states for it."""
        if len(part) != self.length(number):
            raise PeerError(
                f"part {number} has {len(part)} bytes, where its envelope lists "
                f"{self.length(number)}"
            )


def is_in_parts(frames: tuple[bytes, ...]) -> bool:
    """Whether an envelope lists parts instead of carrying its array."""
    return len(frames) == IN_PARTS_FRAMES


def _count(sizes: Sizes) -> int:
    return -(-sizes.bytes // sizes.part_bytes)
