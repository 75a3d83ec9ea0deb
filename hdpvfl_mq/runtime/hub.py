"""Many runs over one connection: frames go to the run their header names.

It owns the table from run name to link; it knows no role. A run that reads slowly fills its own
queue only: what does not fit is dropped and comes again from its sender's journal.
"""

from __future__ import annotations

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.runtime.transport import Arrivals, Link
from hdpvfl_mq.wire.codec import Frames, decode_header
from schemas.ids import RunId


class RunLink(Arrivals):
    """One run's share of a connection."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._connected = True  # its hello is due at once
        self.bytes_sent = 0

    def take_connected(self) -> bool:
        """Whether a new connection stands since the last time this was asked."""
        connected, self._connected = self._connected, False
        return connected

    def connected(self) -> None:
        """A new connection stands."""
        self._connected = True
        self.wake.set()

    async def send(self, frames: Frames) -> None:
        """On the one connection."""
        self.bytes_sent += sum(map(len, frames))
        await self._link.send(frames)


class Hub:
    """Deals arrivals out to the runs of this process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._runs: dict[RunId, RunLink] = {}
        self.connections = 0  # how often a connection has come to stand
        self.strays = 0  # frames for runs that are not here

    def open(self, run: RunId) -> RunLink:
        """A link for one run."""
        self._runs[run] = RunLink(self._link)
        return self._runs[run]

    def close(self, run: RunId) -> None:
        """Forget a run."""
        self._runs.pop(run, None)

    async def pump(self) -> None:
        """Deal out for ever; NetworkError when nothing can arrive any more."""
        while True:
            await self._link.wake.wait()
            self._link.wake.clear()
            for frames in self._link.take():
                self._deal(frames)
            if self._link.take_connected():
                self.connections += 1
                for run in self._runs.values():
                    run.connected()

    def _deal(self, frames: Frames) -> None:
        try:
            run = self._runs.get(decode_header(frames).run)
        except PeerError:
            run = None
        if run is None:
            self.strays += 1
            return
        run.offer(frames)
