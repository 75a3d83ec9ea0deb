"""A TCP proxy with scheduled faults: resets, freezes, delays, cuts and flipped bits.

It owns the faults and their order; it knows no message. A schedule comes from a seed and counts
bytes, so that a fault can hit the middle of a message.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

KINDS = ("reset", "cut", "freeze", "delay", "flip")
CHUNK = 16_384


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong once so many bytes have passed."""

    kind: str
    after_bytes: int
    seconds: float


def schedule(seed: int, *, bytes_max: int = 60_000) -> list[Fault]:
    """One to four faults, in the order they come."""
    dice = random.Random(seed)
    faults = [
        Fault(dice.choice(KINDS), dice.randrange(bytes_max), round(dice.uniform(0.05, 1.5), 2))
        for _ in range(dice.randint(1, 4))
    ]
    if dice.random() < 0.1:  # longer than a party listens in vain
        faults.append(Fault("freeze", dice.randrange(bytes_max), 9.0))
    return sorted(faults, key=lambda fault: fault.after_bytes)


class Proxy:
    """Between one party and the broker."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._faults: list[Fault] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._passed = 0
        self._clock = asyncio.get_running_loop().time
        self._frozen_until = self._cut_until = self._slow_until = 0.0
        self.happened: list[str] = []
        self.healed_at = 0.0

    async def open(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.close()
        self._break()

    def arm(self, faults: list[Fault]) -> None:
        """Count bytes from now on."""
        self._faults, self._passed, self.happened = list(faults), 0, []

    def disarm(self) -> None:
        """What has not come yet does not come."""
        self._faults = []

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._clock() < self._cut_until:
            _reset(writer)
            return
        try:
            inner, out = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, out}
        await asyncio.gather(self._pipe(reader, out), self._pipe(inner, writer))
        for each in (writer, out):
            self._writers.discard(each)
            _reset(each)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                chunk = self._meet(chunk)
                while (left := self._frozen_until - self._clock()) > 0:
                    await asyncio.sleep(min(left, 0.1))
                if self._clock() < self._slow_until:
                    await asyncio.sleep(0.03)
                writer.write(chunk)
                await writer.drain()
        with suppress(OSError):
            writer.write_eof()

    def _meet(self, chunk: bytes) -> bytes:
        """Let the next fault happen if its byte is in this chunk."""
        before, self._passed = self._passed, self._passed + len(chunk)
        while self._faults and self._faults[0].after_bytes < self._passed:
            fault = self._faults.pop(0)
            until = self._clock() + fault.seconds
            self.happened.append(fault.kind)
            self.healed_at = max(self.healed_at, until)
            if fault.kind == "freeze":
                self._frozen_until = until
            elif fault.kind == "delay":
                self._slow_until = until
            elif fault.kind == "flip":
                place = max(0, fault.after_bytes - before)
                chunk = chunk[:place] + bytes([chunk[place] ^ 0x10]) + chunk[place + 1 :]
            else:
                self._cut_until = until if fault.kind == "cut" else 0.0
                self._break()
        return chunk

    def _break(self) -> None:
        for writer in tuple(self._writers):
            _reset(writer)
        self._writers.clear()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection at once, as a broken network does."""
    with suppress(OSError):
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
