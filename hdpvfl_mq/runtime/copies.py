"""Which envelopes were sent lately, and which were sent again.

It owns the memory of both. Resending an envelope sends it to all its receivers, even if only one
needs it. Both know an envelope by its header and signature: the arrays of what is acknowledged must
not stay in memory. It reads no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hdpvfl_mq.wire.codec import Frames


class Copies:
    """The copies that one node has sent lately."""

    def __init__(self) -> None:
        self._sent: dict[Frames, float] = {}

    def note(self, frames: Iterable[Frames], now: float) -> None:
        """Remember that these envelopes are sent again now."""
        self._sent |= {each[:2]: now for each in frames}

    def due(
        self,
        frames: Iterable[Frames],
        now: float,
        *,
        wait_s: float,
        asked: Iterable[Frames] = (),
        lost_s: float = 0.0,
    ) -> tuple[Frames, ...]:
        """The given envelopes that were not resent within the last `wait_s`.

        What a peer has `asked` for was lost on its way to that peer, so it waits `lost_s` only.
        """
        self._sent = {name: at for name, at in self._sent.items() if at > now - wait_s}
        lost = {each[:2] for each in asked}
        return tuple(each for each in frames if not self._is_recent(each, lost, now - lost_s))

    def _is_recent(self, frames: Frames, lost: set[Frames], before: float) -> bool:
        sent = self._sent.get(frames[:2])
        return sent is not None and not (frames[:2] in lost and sent <= before)


class Sendings:
    """When the envelopes of the last seconds were first sent."""

    def __init__(self) -> None:
        self._first: dict[Frames, float] = {}

    def note(self, frames: Iterable[Frames], now: float, *, kept_s: float) -> None:
        """Remember for `kept_s` that these envelopes are sent for the first time now."""
        while self._first and next(iter(self._first.values())) <= now - kept_s:
            del self._first[next(iter(self._first))]
        self._first |= {each[:2]: now for each in frames}

    def is_fresh(self, frames: Iterable[Frames], now: float, *, within_s: float) -> bool:
        """Whether one of these envelopes was sent so lately that no answer can be here yet."""
        return any(self._first.get(each[:2], -math.inf) > now - within_s for each in frames)
