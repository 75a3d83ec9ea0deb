"""Per-peer numbers: each ordered pair of parties has one stream, delivered once and in order.

It owns counting, the bounded wait for a missing number and the envelopes not acknowledged yet; it
does not know what the bytes mean. Folding the journal rebuilds everything here except how far peers
have acknowledged, which only saves sending envelopes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hdpvfl_mq.errors import CheatingError, WithheldError

Item = TypeVar("Item")
EARLY_MAX = 256  # envelopes of one peer that may wait for a missing earlier one
EARLY_BYTES_MAX = 66 * 2**20  # and their total size: the largest envelope fits
EARLY_BYTES_ALL = 96 * 2**20  # of all peers; above it, none may have more than its own room:
EARLY_BYTES_EACH = 2**20
UNACKNOWLEDGED_BYTES_MAX = 128 * 2**20  # to one peer; above it, nothing is accepted from that peer


@dataclass
class Busy:
    """What all streams of a node have in common, so that no turn looks at every peer."""

    arrived: set[str] = field(default_factory=set)  # peers of whom an envelope waits for a turn
    waiting: set[str] = field(default_factory=set)  # peers that have not acknowledged an envelope
    acknowledged: int = 0  # deliveries that peers have acknowledged since this process began
    early_bytes: int = 0  # of all envelopes that wait for a turn


@dataclass
class Inbox(Generic[Item]):
    """Envelopes received from one peer."""

    peer: str = ""
    busy: Busy = field(default_factory=Busy, repr=False)
    received: int = 0
    early: dict[int, tuple[Item, int]] = field(default_factory=dict)
    early_bytes: int = 0

    def offer(self, sequence: int, item: Item, size: int) -> bool:
        """Store an envelope, possibly out of order; False for a copy of an old one."""
        if sequence <= self.received or sequence in self.early:
            return False
        if sequence > self.received + EARLY_MAX:
            raise WithheldError(f"sequence {sequence} is too far ahead of {self.received}")
        is_next = sequence == self.received + 1
        if not is_next and self.early_bytes + size > EARLY_BYTES_MAX:
            raise WithheldError(
                f"{self.early_bytes + size} bytes wait for envelope {self.received + 1}"
            )
        if not is_next and self._is_crowded(size):
            return True  # dropped, perhaps for what others have sent: no note, it comes again
        self.early[sequence] = (item, size)
        self.early_bytes += size
        self.busy.early_bytes += size
        self.busy.arrived.add(self.peer)
        return True

    def _is_crowded(self, size: int) -> bool:
        """Whether the envelopes of all peers leave no room for one that has to wait."""
        is_full = self.busy.early_bytes + size > EARLY_BYTES_ALL
        return is_full and self.early_bytes + size > EARLY_BYTES_EACH

    @property
    def missing(self) -> int | None:
        """The number that later envelopes wait for; None if no envelope waits."""
        has_gap = bool(self.early) and self.received + 1 not in self.early
        return self.received + 1 if has_gap else None

    def next(self) -> Item | None:
        """The next envelope in order, once; the caller records it before the next call."""
        found = self.early.pop(self.received + 1, None)
        if found is None:
            return None
        self.received += 1
        self.early_bytes -= found[1]
        self.busy.early_bytes -= found[1]
        if not self.early:
            self.busy.arrived.discard(self.peer)
        return found[0]


@dataclass(frozen=True, slots=True)
class Position:
    """How far the stream to one peer is, and the size of the first envelope it has not answered."""

    acknowledged: int
    sent: int
    first_bytes: int


@dataclass
class Outbox(Generic[Item]):
    """Envelopes sent to one peer and not acknowledged yet."""

    peer: str = ""
    busy: Busy = field(default_factory=Busy, repr=False)
    sent: int = 0
    acknowledged: int = 0
    waiting: dict[int, tuple[Item, int]] = field(default_factory=dict)
    waiting_bytes: int = 0
    # Digests of envelopes, from the one that the last recorded answer names, to check the next.
    digests: dict[int, bytes] = field(default_factory=dict)
    confirmed: int = 0

    @property
    def position(self) -> Position:
        """How far this stream is."""
        first_bytes = next((size for _, size in self.waiting.values()), 0)
        return Position(self.acknowledged, self.sent, first_bytes)

    def number(self) -> int:
        """Take the next sequence number; it is never reused."""
        self.sent += 1
        return self.sent

    def keep(self, sequence: int, item: Item, size: int) -> None:
        """Keep an envelope until it is acknowledged."""
        if sequence > self.acknowledged:
            self.waiting[sequence] = (item, size)
            self.waiting_bytes += size
            self.busy.waiting.add(self.peer)

    def is_seen(self, sequence: int, seen: bytes) -> bool:
        """Whether `seen` is the digest of the envelope with this number; True if none is kept."""
        return self.digests.get(sequence, seen) == seen

    def confirm(self, sequence: int) -> None:
        """A recorded answer names this envelope; later answers never name an older one."""
        for number in range(self.confirmed, sequence):
            self.digests.pop(number, None)
        self.confirmed = max(self.confirmed, sequence)

    def acknowledge(self, sequence: int) -> bool:
        """Drop envelopes that the peer has recorded; True if this acknowledges any more."""
        if sequence > self.sent:
            raise CheatingError(f"acknowledges {sequence} of {self.sent} envelopes")
        if sequence <= self.acknowledged:
            return False
        for number in range(self.acknowledged + 1, sequence + 1):
            _, size = self.waiting.pop(number, (None, 0))
            self.waiting_bytes -= size
        self.busy.acknowledged += sequence - self.acknowledged
        self.acknowledged = sequence
        if not self.waiting:
            self.busy.waiting.discard(self.peer)
        return True
