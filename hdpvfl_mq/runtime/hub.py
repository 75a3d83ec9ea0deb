"""Many runs over one connection: each frame goes to the run that its header names.

It owns the table from run name to link; it knows no role. A run that reads slowly fills only its
own queue: frames that do not fit are dropped, and their sender sends them again from its journal.
"""

from __future__ import annotations

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.runtime.arrivals import Arrivals, Link
from hdpvfl_mq.wire.codec import Frames, decode_header
from schemas.ids import RunId


class RunLink(Arrivals):
    """One run's share of a connection."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._connected = True  # a new link sends its hello at once
        self.bytes_sent = 0

    def take_connected(self) -> bool:
        """Whether a new connection was made since the last call."""
        connected, self._connected = self._connected, False
        return connected

    def has_room(self) -> bool:
        """Whether the shared connection has room for parts and copies."""
        return self._link.has_room()

    def connected(self) -> None:
        """Note that a new connection was made."""
        self._connected = True
        self.wake.set()

    async def send(self, frames: Frames) -> None:
        """Send frames over the shared connection."""
        self.bytes_sent += sum(map(len, frames))
        await self._link.send(frames)


class Hub:
    """Distributes arriving frames to the runs of this process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._runs: dict[RunId, RunLink] = {}
        self.connections = 0  # how many connections have been made

    def open(self, run: RunId) -> RunLink:
        """A link for one run."""
        self._runs[run] = RunLink(self._link)
        return self._runs[run]

    def close(self, run: RunId) -> None:
        """Forget a run."""
        self._runs.pop(run, None)

    async def pump(self) -> None:
        """Distribute frames for ever; NetworkError when nothing can arrive any more."""
        self._link.pass_on(self._deal)
        while True:
            for frames in self._link.take():  # those that came before
                self._deal(frames)
            await self._link.wake.wait()
            self._link.wake.clear()
            if self._link.take_connected():
                self.connections += 1
                for run in self._runs.values():
                    run.connected()

    def _deal(self, frames: Frames) -> None:
        try:
            run = self._runs.get(decode_header(frames).run)
        except PeerError:
            return
        if run is not None:  # else it is not in this process
            run.offer(frames)
