"""A ZeroMQ socket in an event loop, without a future for every message.

It owns when a socket is read; it knows no option and no message. ZeroMQ's descriptor only signals
that something changed since the socket was last used, and any use clears the signal. So the socket
is always read first; the descriptor is waited for when there is nothing to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import zmq

# Plain numbers: an operation on two flags of the library is ten times slower.
_AT_ONCE, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _READABLE = int(zmq.EVENTS), int(zmq.POLLIN)
_IN_A_ROW = 64  # messages that are read before other tasks of the loop get their turn


class LoopSocket:
    """One socket, read by one task of the running loop; `close` it before its context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int) -> None:
        self.plain: zmq.Socket[bytes] = context.socket(kind)
        self._loop = asyncio.get_running_loop()
        self._is_readable = asyncio.Event()
        self._in_a_row = 0
        self._descriptor = int(self.plain.get(zmq.FD))
        self._loop.add_reader(self._descriptor, self.look)

    async def receive(self) -> list[zmq.Frame]:
        """The frames of the next message; cancelling loses none."""
        while (first := await self._first()) is None:
            pass
        frames = [first]
        while frames[-1].more:
            frames.append(self.plain.recv(_AT_ONCE, copy=False))
        return frames

    async def _first(self) -> zmq.Frame | None:
        """The first frame of the next message; None if a connection broke and took it along."""
        while not int(self.plain.get(_EVENTS)) & _READABLE:
            self._is_readable.clear()
            await self._is_readable.wait()
            self._in_a_row = 0
        self._in_a_row += 1
        if self._in_a_row > _IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        try:
            return self.plain.recv(_AT_ONCE, copy=False)
        except zmq.Again:
            return None

    def send(self, frames: Sequence[bytes]) -> None:
        """Queue the frames of one message; zmq.Again if there is no room for them.

        Call `look` after the last of several messages.
        """
        for frame in frames[:-1]:
            self.plain.send(frame, _MORE)
        self.plain.send(frames[-1], _AT_ONCE)

    def look(self) -> None:
        """Wake the reader if a message is there; needed after any other use of the socket."""
        if int(self.plain.get(_EVENTS)) & _READABLE:
            self._is_readable.set()

    def close(self) -> None:
        """Stop reading; the context closes the socket."""
        self._loop.remove_reader(self._descriptor)
