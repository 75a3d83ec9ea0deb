"""Which envelopes were sent again lately, and which bulk is probably still on its way.

It owns the memory of copies. Resending an envelope sends it to all its receivers, even if
only one needs it. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from hdpvfl_mq.wire.codec import Frames

BULK_BYTES = 2**17  # an envelope of this size is bulk: a copy is work for everybody on its way


class Copies:
    """The copies that one node has sent lately."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[float, Frames]] = {}  # by identity, which the frames keep
        self._arrives: dict[bytes, float] = {}  # by signature, which keeps no bulk in memory

    def expect(self, frames: Iterable[Frames], now: float, wait_s: float) -> None:
        """Remember that the bulk among these envelopes is on its way for so long.

        A peer may acknowledge something else in this time, or the same again, because it has not
        read the bulk yet: that does not mean that it was lost.
        """
        self._arrives = {name: at for name, at in self._arrives.items() if at > now}
        self._arrives |= {e[1]: now + wait_s for e in frames if sum(map(len, e)) >= BULK_BYTES}

    def forget_bulk(self) -> None:
        """Expect nothing any more: the connection that carried it is lost."""
        self._arrives.clear()

    def without_bulk(self, frames: Iterable[Frames], now: float) -> tuple[Frames, ...]:
        """The given envelopes that are not on their way."""
        return tuple(each for each in frames if self._arrives.get(each[1], now) <= now)

    def note(self, frames: Iterable[Frames], now: float) -> None:
        """Remember that these envelopes are sent again now."""
        self._sent |= {id(each): (now, each) for each in frames}

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
        self._sent = {name: at for name, at in self._sent.items() if at[0] > now - wait_s}
        lost = {id(each) for each in asked}
        return tuple(each for each in frames if not self._is_recent(each, lost, now - lost_s))

    def _is_recent(self, frames: Frames, lost: set[int], before: float) -> bool:
        sent = self._sent.get(id(frames))
        return sent is not None and not (id(frames) in lost and sent[0] <= before)
