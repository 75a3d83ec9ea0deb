"""Frames that have arrived and that no turn has taken yet, in a bounded queue.

It owns the queue and what the runner needs from a connection; it knows no socket and no message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from hdpvfl_mq.errors import NetworkError
from hdpvfl_mq.wire.codec import Frames

QUEUE_MAX = 4096  # messages
QUEUE_BYTES_MAX = 32 * 2**20  # of arrivals; one more message may wait to enter the queue
# Where nothing waits to enter a queue, more is dropped. What honest peers send at once is less:
# bulk that is dropped comes late.
OFFERED_BYTES_MAX = 8 * QUEUE_BYTES_MAX


class Link(Protocol):
    """The methods of a connection that the runner uses."""

    wake: asyncio.Event

    def take(self) -> list[Frames]: ...

    def pass_on(self, to: Callable[[Frames], None]) -> None: ...

    def take_connected(self) -> bool: ...

    def has_room(self) -> bool: ...

    async def send(self, frames: Frames) -> None: ...


class Arrivals:
    """A bounded queue that one task fills and the runner drains."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._queue: deque[Frames] = deque()
        self._queue_bytes = 0
        self._broken: BaseException | None = None
        self._pass_on: Callable[[Frames], None] | None = None
        self.bytes_received = 0

    def pass_on(self, to: Callable[[Frames], None]) -> None:
        """Hand every message over as it arrives, instead of queueing it for `take`."""
        self._pass_on = to

    def drop_all(self) -> None:
        """Nobody takes messages any more: drop what has arrived and what will."""
        self.pass_on(lambda frames: None)
        self._queue.clear()
        self._room.set()

    def watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Make the runner stop when a task that it depends on ends: nothing would arrive again."""
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._broken = task.exception() or RuntimeError("it returned")
            self.wake.set()

    async def put(self, frames: Frames) -> None:
        """Add frames, waiting while the queue is full."""
        size = sum(map(len, frames))
        if self._pass_on is not None:
            self.bytes_received += size
            self._pass_on(frames)
            return
        await self._room.wait()
        self._queue.append(frames)
        self._queue_bytes += size
        self.bytes_received += size
        if len(self._queue) >= QUEUE_MAX or self._queue_bytes >= QUEUE_BYTES_MAX:
            self._room.clear()
        self.wake.set()

    def offer(self, frames: Frames) -> None:
        """Add frames if there is room; the sender sends dropped frames again from its journal."""
        if len(self._queue) < QUEUE_MAX and self._queue_bytes < OFFERED_BYTES_MAX:
            size = sum(map(len, frames))
            self._queue.append(frames)
            self._queue_bytes += size
            self.bytes_received += size
            self.wake.set()

    def has_room(self) -> bool:
        """Whether parts of large arrays and copies may be sent now."""
        return True

    @property
    def waiting(self) -> int:
        """The number of messages that no turn has taken yet."""
        return len(self._queue)

    def take(self) -> list[Frames]:
        """Take all arrived frames; NetworkError when nothing can arrive any more."""
        if self._broken is not None:
            raise NetworkError(
                f"reading from the network ended ({type(self._broken).__name__}); start this "
                "process again, it goes on where it stopped"
            ) from self._broken
        taken = list(self._queue)
        self._queue.clear()
        self._queue_bytes = 0
        self._room.set()
        return taken
