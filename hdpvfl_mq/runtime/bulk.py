"""Large envelopes: how long they may take, and which are probably still on their way.

It owns the pace of bulk, which follows what bulk has lately taken. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hdpvfl_mq.wire.codec import Frames

BYTES_PER_S = 5e5  # bulk waits longer: its receiver works before it acknowledges
MAX_S = 15.0
# Bulk waits this many times as long as bulk has lately taken to be acknowledged: on a busy machine
# its receivers work for longer than any constant says, and copies would be more work for them.
SLOWER = 2.0
ABOVE_S = 0.25  # so much bulk is an eighth of a megabyte: FROM_BYTES
REMEMBERED_S = 60.0
# Bulk waits up to this long, by its size: copies fill the memory of a peer that works for minutes
# before it reads them.
RESEND_MAX_S = 60.0
FROM_BYTES = 2**17  # an envelope of this size is bulk: a copy is work for everybody on its way
# A peer that asks for bulk gets it again after this long, far below the time for which a gap may
# last: else whoever sent it would be taken for withholding.
ASKED_S = 5.0


@dataclass
class Bulk:
    """The bulk that one node has sent lately."""

    expected_s: float = 0.0  # what the bulk of the last turns takes by its size
    answer_s: float = 0.0  # the longest that bulk has lately waited for an answer
    answered_at: float = 0.0
    # When it was sent and how long it may take, by signature: it keeps no frames.
    _sent: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def sent(self, frames: Iterable[Frames]) -> None:
        """A turn sent these envelopes; bulk of earlier turns is probably still on its way."""
        size = sum(len(frame) for each in frames for frame in each)
        self.expected_s = max(size / BYTES_PER_S, self.expected_s / 2)

    def answered(self, since: float, now: float) -> None:
        """A peer acknowledges something that has waited since then."""
        if self.expected_s <= ABOVE_S:
            return
        if now - since >= self.answer_s or now > self.answered_at + REMEMBERED_S:
            self.answer_s, self.answered_at = now - since, now

    @property
    def wait_s(self) -> float:
        """How much longer bulk may take than a small message."""
        if self.expected_s <= ABOVE_S:
            return self.expected_s
        return max(self.least_s, min(SLOWER * self.answer_s, RESEND_MAX_S))

    @property
    def least_s(self) -> float:
        """What bulk may take by its size alone."""
        return min(MAX_S, self.expected_s)

    @property
    def longest_s(self) -> float:
        """The longest wait between two copies."""
        return RESEND_MAX_S * self.least_s / MAX_S

    def expect(self, frames: Iterable[Frames], now: float, wait_s: float) -> None:
        """Remember that the bulk among these envelopes is on its way for so long.

        A peer may acknowledge something else in this time, or the same again, because it has not
        read the bulk yet: that does not mean that it was lost.
        """
        self._sent = {name: each for name, each in self._sent.items() if sum(each) > now}
        self._sent |= {e[1]: (now, wait_s) for e in frames if sum(map(len, e)) >= FROM_BYTES}

    def forget(self) -> None:
        """Expect nothing any more: the connection that carried it is lost."""
        self._sent.clear()

    def without(
        self, frames: Iterable[Frames], now: float, *, asked: bool = False
    ) -> tuple[Frames, ...]:
        """The given envelopes that are not bulk on its way; `asked` by a peer, it has less time."""
        longest_s = ASKED_S if asked else RESEND_MAX_S
        return tuple(each for each in frames if not self._is_on_way(each, now, longest_s))

    def _is_on_way(self, frames: Frames, now: float, longest_s: float) -> bool:
        sent_at, wait_s = self._sent.get(frames[1], (now, 0.0))
        return now < sent_at + min(wait_s, longest_s)
