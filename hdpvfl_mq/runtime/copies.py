"""Which envelopes were sent again lately.

It owns the memory of copies. An envelope goes to all its receivers again, whoever of them caused
that, so in a crowd a copy for one is a copy for all. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from hdpvfl_mq.wire.codec import Frames


class Copies:
    """The copies that one node has sent lately."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[float, Frames]] = {}  # by identity, which the frames keep

    def note(self, frames: Iterable[Frames], now: float) -> None:
        """Remember that these envelopes are sent again now."""
        self._sent |= {id(each): (now, each) for each in frames}

    def due(self, frames: Iterable[Frames], now: float, *, wait_s: float) -> tuple[Frames, ...]:
        """Those of these envelopes that were not sent again within the last `wait_s`."""
        self._sent = {name: at for name, at in self._sent.items() if at[0] > now - wait_s}
        found = tuple(each for each in frames if id(each) not in self._sent)
        self.note(found, now)
        return found
