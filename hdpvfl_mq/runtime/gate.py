"""The broker's ROUTER with CURVE, and the list of keys that may connect to it.

It owns the broker's socket, who is admitted and how often a key may connect; it knows no message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import zmq
from zmq.utils import z85

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.runtime.arrivals import QUEUE_MAX
from hdpvfl_mq.runtime.connections import Connections
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.loop_socket import LoopSocket
from hdpvfl_mq.runtime.tcp import wire_bytes
from hdpvfl_mq.runtime.transport import LIMITS, LINGER_MS, SOURCE, set_common_options
from hdpvfl_mq.wire.codec import Frames

NOTES_MAX = 1000  # notes of refused connections that one gate keeps
CONNECTIONS_BURST = 20.0  # connections of one key
CONNECTIONS_EVERY_S = 2.0
PENALTY_S = 30.0  # for a key whose connection sent more than the largest message
ADMISSION_S = 2.0  # a handshake ends at most this long after the connection was made
PACES_MAX = 10_000
QUEUE_MEMBER = 64  # messages of each member to one other, besides QUEUE_MAX; bytes are limited
BACKLOG = 100  # connections that wait to be accepted, besides one of each member
FORGOTTEN_MAX = 1000  # connections that are gone and not forgotten yet
_ZAP = "inproc://zeromq.zap.01"


@dataclass
class Pace:
    """How often one key may connect, or speak: a burst, then once every few seconds."""

    left: float = CONNECTIONS_BURST
    seen_s: float = 0.0
    burst: float = CONNECTIONS_BURST
    every_s: float = CONNECTIONS_EVERY_S

    def allows(self, now_s: float) -> bool:
        """Whether one more is allowed now."""
        earned = (now_s - self.seen_s) / self.every_s
        self.left, self.seen_s = min(self.burst, self.left + earned), now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def punish(self) -> None:
        """Allow no connection for a while, and no burst after that."""
        self.left = min(self.left, 1.0 - PENALTY_S / CONNECTIONS_EVERY_S)


class Gate:
    """The broker's ROUTER and the ZAP allow-list in front of it."""

    def __init__(
        self,
        endpoint: str,
        keys: Keys,
        allowed: Mapping[bytes, str],
        *,
        refused: Callable[[str], None],
    ) -> None:
        self._allowed, self._refused, self._notes = allowed, refused, 0
        self._pace: dict[str, Pace] = {}
        self._admitted: deque[tuple[float, str]] = deque(maxlen=PACES_MAX)
        # Descriptors and inodes of connections that have sent a message.
        self._descriptors: dict[bytes, tuple[int, int]] = {}
        self.bytes_sent = self.bytes_received = 0
        self._context = zmq.Context(io_threads=2)
        self._zap = LoopSocket(self._context, zmq.REP)
        self._zap.plain.bind(_ZAP)
        self._socket = LoopSocket(self._context, zmq.ROUTER)
        socket = self._socket.plain
        set_common_options(socket, len(allowed))
        loop = asyncio.get_running_loop()
        self.connections = Connections(
            socket,
            LIMITS,
            note=lambda reason: loop.call_soon_threadsafe(self._note, reason),
            overran=lambda since_s: loop.call_soon_threadsafe(self._punish, since_s),
        )
        self.connections.members = len(allowed)
        self.tasks = (asyncio.create_task(self._admit()),)
        self._bind(endpoint, keys)

    def _bind(self, endpoint: str, keys: Keys) -> None:
        """Listen with CURVE; OperatorError if the endpoint is not free."""
        socket = self._socket.plain
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
        socket.setsockopt(zmq.BACKLOG, BACKLOG + len(self._allowed))
        socket.setsockopt(zmq.SNDHWM, QUEUE_MAX + QUEUE_MEMBER * len(self._allowed))
        socket.zap_domain = b"hdpvfl"
        socket.curve_server = True
        socket.curve_secretkey = z85.encode(keys.curve_secret)
        socket.curve_publickey = z85.encode(keys.curve_public)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as broken:
            self.close()
            raise OperatorError(
                f"bind = {endpoint!r}: {broken}; stop what uses the port, or choose another"
            ) from None

    async def receive(self) -> tuple[bytes, str | None, Frames]:
        """The next message, as (connection, party of the connection's key, frames)."""
        parts = await self._socket.receive()
        try:
            user = str(parts[-1].get("User-Id"))
        except zmq.ZMQError:
            user = None
        descriptor, connection = int(parts[-1].get(SOURCE)), parts[0].bytes
        size = wire_bytes(parts[1:])
        self.bytes_received += size
        inode = self.connections.took(descriptor, user, size)
        if len(self._descriptors) > 2 * self.connections.count + FORGOTTEN_MAX:
            self._descriptors = {c: at for c, at in self._descriptors.items() if self.is_open(c)}
        self._descriptors[connection] = descriptor, inode
        return connection, user, tuple(part.bytes for part in parts[1:])

    def send(
        self, connections: Sequence[bytes], frames: Frames, sender: str = ""
    ) -> tuple[bytes, ...]:
        """Send frames over some connections; returns those that are gone."""
        size, gone = wire_bytes(frames), tuple[bytes, ...]()
        for connection in connections:
            at = self._descriptors.get(connection, (-1, -1))
            if not self.connections.has_room(*at, sender, size):
                continue  # dropped, as when its queue is full
            try:
                self._socket.send((connection, *frames))
            except zmq.Again:
                self.connections.took_back(*at, sender, size)
                continue  # its queue is full; the sender sends its stored bytes again
            except zmq.ZMQError:
                self.connections.took_back(*at, sender, size)
                self._descriptors.pop(connection, None)
                gone = (*gone, connection)
            else:
                self.bytes_sent += size
        self._socket.look()
        return gone

    def is_open(self, connection: bytes) -> bool:
        """Whether a connection that has sent a message is still open."""
        known = self._descriptors.get(connection)
        return known is not None and self.connections.is_open(*known)

    async def _admit(self) -> None:
        """ZAP: admit a key on the list under its party's name; refuse every other key."""
        while True:
            asked = [frame.bytes for frame in await self._zap.receive()]
            self.connections.members = len(self._allowed)
            version, request, _, _, _, mechanism, *credentials = asked
            known = mechanism == b"CURVE" and len(credentials) == 1
            party = self._allowed.get(credentials[0]) if known else None
            if len(self._pace) > PACES_MAX:  # guests can make any number of keys
                self._pace.clear()
            if party is None:
                self._note("a connection whose key is not on the list of members")
            elif not self._pace.setdefault(party, Pace()).allows(asyncio.get_running_loop().time()):
                self._note(f"cut {party}: it connects too often")
                party = None
            else:
                self._admitted.append((asyncio.get_running_loop().time(), party))
            code, text = (b"200", b"OK") if party else (b"400", b"unknown key")
            name = (party or "").encode()
            self._zap.send((version, request, code, text, name, b""))
            self._zap.look()

    def _punish(self, since_s: float) -> None:
        """Delay the keys admitted when a connection that never finished a message was made.

        A connection's key is known only with its first message, so all keys admitted at that time
        must wait before they connect again; they keep their open connections.
        """
        for at_s, party in self._admitted:
            if since_s <= at_s <= since_s + ADMISSION_S:
                self._pace.setdefault(party, Pace()).punish()  # paces are cleared at times

    def _note(self, reason: str) -> None:
        if self._notes < NOTES_MAX:
            self._notes += 1
            self._refused(reason)

    def close(self) -> None:
        """Flush briefly and close."""
        for task in self.tasks:
            task.cancel()
        self.connections.close()
        self._zap.close()
        self._socket.close()
        self._context.destroy(linger=LINGER_MS)
