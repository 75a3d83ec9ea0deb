"""Per-peer numbers: each ordered pair of parties has one stream, delivered once and in order.

It owns counting, the bounded wait for a missing number and what is not acknowledged yet; it knows
no bytes' meaning. Everything here is rebuilt by folding the journal, except how far peers have
acknowledged, which is only a hint of what need not be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hdpvfl_mq.errors import PeerError

Item = TypeVar("Item")
EARLY_MAX = 256  # envelopes of one peer that may wait for a missing one
EARLY_BYTES_MAX = 66 * 2**20  # and what they may take: the largest envelope fits
UNACKNOWLEDGED_BYTES_MAX = 128 * 2**20  # to a peer, before nothing more is taken from it


@dataclass
class Inbox(Generic[Item]):
    """What has come from one peer."""

    received: int = 0
    early: dict[int, tuple[Item, int]] = field(default_factory=dict)
    early_bytes: int = 0

    def offer(self, sequence: int, item: Item, size: int) -> bool:
        """Keep an envelope that may come out of order; False for a copy of an old one."""
        if sequence <= self.received or sequence in self.early:
            return False
        if sequence > self.received + EARLY_MAX:
            raise PeerError(f"sequence {sequence} is too far ahead of {self.received}")
        is_next = sequence == self.received + 1
        if not is_next and self.early_bytes + size > EARLY_BYTES_MAX:
            raise PeerError(
                f"{self.early_bytes + size} bytes wait for envelope {self.received + 1}"
            )
        self.early[sequence] = (item, size)
        self.early_bytes += size
        return True

    def next(self) -> Item | None:
        """The next envelope in order, once; the caller records it before asking again."""
        found = self.early.pop(self.received + 1, None)
        if found is None:
            return None
        self.received += 1
        self.early_bytes -= found[1]
        return found[0]


@dataclass
class Outbox(Generic[Item]):
    """What has gone to one peer and is not acknowledged."""

    sent: int = 0
    acknowledged: int = 0
    waiting: dict[int, tuple[Item, int]] = field(default_factory=dict)
    waiting_bytes: int = 0
    # Digest of every envelope from the last one that a recorded answer names, to check the next.
    digests: dict[int, bytes] = field(default_factory=dict)
    confirmed: int = 0

    def number(self) -> int:
        """The next sequence number; taken for ever."""
        self.sent += 1
        return self.sent

    def keep(self, sequence: int, item: Item, size: int) -> None:
        """Hold an envelope until it is acknowledged."""
        if sequence > self.acknowledged:
            self.waiting[sequence] = (item, size)
            self.waiting_bytes += size

    def is_seen(self, sequence: int, seen: bytes) -> bool:
        """Whether the peer names the envelope that it was sent under this number."""
        return self.digests.get(sequence, seen) == seen

    def confirm(self, sequence: int) -> None:
        """A recorded answer names this envelope: later ones name no older one."""
        for number in range(self.confirmed, sequence):
            self.digests.pop(number, None)
        self.confirmed = max(self.confirmed, sequence)

    def acknowledge(self, sequence: int) -> bool:
        """Forget what the peer has recorded; True when that is news."""
        if sequence > self.sent:
            raise PeerError(f"acknowledges {sequence} of {self.sent} envelopes")
        if sequence <= self.acknowledged:
            return False
        for number in range(self.acknowledged + 1, sequence + 1):
            _, size = self.waiting.pop(number, (None, 0))
            self.waiting_bytes -= size
        self.acknowledged = sequence
        return True
