"""ZeroMQ with CURVE: how frames get in and out of a process.

It owns sockets, their options and the tasks that read them; it knows no message. One task reads
each socket into a bounded queue and is never cancelled while it receives (that would lose
messages); whoever consumes waits on an event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import zmq
import zmq.asyncio
from zmq.utils import z85

from hdpvfl_mq.errors import NetworkError, OperatorError
from hdpvfl_mq.runtime.connections import Connections, Limits, wire_bytes
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.wire.codec import Frames
from schemas.envelope import MAX_ARRAY_BYTES

QUEUE_MAX = 4096  # messages
QUEUE_BYTES_MAX = 32 * 2**20  # of arrivals; one more message may be on its way into the queue
UNREAD_MESSAGES = 2  # libzmq holds that many of a connection; one more may be arriving
LINGER_MS = 500
# A frame above its limit but below this is refused by name; one above this cuts the connection.
MAX_MESSAGE_BYTES = MAX_ARRAY_BYTES + 2**20
NOTES_MAX = 1000  # refused connections one gate tells of
BROKER = "broker"
CONNECTIONS_BURST = 20.0  # of one key
CONNECTIONS_EVERY_S = 2.0
PACES_MAX = 10_000
_ZAP = "inproc://zeromq.zap.01"
# What libzmq and the kernel may hold of one connection that keeps to the limits above.
LIMITS = Limits(
    unread_bytes=(UNREAD_MESSAGES + 1) * MAX_MESSAGE_BYTES + 16 * 2**20,
    unsent_bytes=MAX_MESSAGE_BYTES,
)

_REFUSED = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_TROUBLE: dict[int, str] = {
    zmq.EVENT_CONNECT_RETRIED: "unreachable",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "own key refused",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no common protocol",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake failed",
}
AFTER_REFUSAL_S = 1.0


class Link(Protocol):
    """What the pump needs of a connection."""

    wake: asyncio.Event

    def take(self) -> list[Frames]: ...

    def take_connected(self) -> bool: ...

    async def send(self, frames: Frames) -> None: ...


class Arrivals:
    """A bounded queue that one task fills and the pump drains."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._queue: deque[Frames] = deque()
        self._queue_bytes = 0
        self._broken: BaseException | None = None
        self.bytes_received = 0

    def watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Have the pump stop when a task it lives on ends: nothing would ever arrive again."""
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._broken = task.exception() or RuntimeError("it returned")
            self.wake.set()

    async def put(self, frames: Frames) -> None:
        """Add frames, waiting while the queue is full."""
        await self._room.wait()
        self._queue.append(frames)
        size = sum(map(len, frames))
        self._queue_bytes += size
        self.bytes_received += size
        if len(self._queue) >= QUEUE_MAX or self._queue_bytes >= QUEUE_BYTES_MAX:
            self._room.clear()
        self.wake.set()

    def offer(self, frames: Frames) -> None:
        """Add frames if there is room; what is dropped comes again from its sender's journal."""
        if len(self._queue) < QUEUE_MAX:
            self._queue.append(frames)
            self.bytes_received += sum(map(len, frames))
            self.wake.set()

    def take(self) -> list[Frames]:
        """Everything that has arrived; NetworkError when nothing can any more."""
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


def set_common_options(socket: zmq.asyncio.Socket) -> None:
    """Limits and heartbeats of every socket."""
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, QUEUE_MAX)
    socket.setsockopt(zmq.RCVHWM, UNREAD_MESSAGES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2_000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 8_000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 8_000)


class DealerLink(Arrivals):
    """A party's one outgoing connection, to the broker."""

    def __init__(self, endpoint: str, keys: Keys, broker_key: bytes) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.bytes_sent = 0
        self._connected = False
        self.is_connected = False
        self.trouble = ""  # why there is no connection, as far as ZeroMQ says
        self._context = zmq.asyncio.Context()
        socket = self._socket = self._context.socket(zmq.DEALER)
        set_common_options(socket)
        # No routing id of our own: the broker gives every connection a new one. A fixed one would
        # be ignored after a reconnect while the broker has not noticed that the old one died.
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
        socket.curve_serverkey = z85.encode(broker_key)
        socket.curve_secretkey = z85.encode(keys.curve_secret)
        socket.curve_publickey = z85.encode(keys.curve_public)
        loop = asyncio.get_running_loop()
        self._connections = Connections(
            socket,
            LIMITS,
            note=lambda reason: None,  # the broker cannot be refused; it is connected to again
            connected=lambda: loop.call_soon_threadsafe(self._stands),
            trouble=lambda event: loop.call_soon_threadsafe(self._failed, event),
        )
        self._reader = self.watch(asyncio.create_task(self._read()))
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as broken:
            raise NetworkError(f"broker = {endpoint!r}: {broken}; check host and port") from None

    async def send(self, frames: Frames) -> None:
        """Queue frames; what does not fit is dropped and comes again from the journal."""
        with suppress(zmq.Again):
            await self._socket.send_multipart(frames, flags=zmq.NOBLOCK)
            self.bytes_sent += sum(map(len, frames))

    def take_connected(self) -> bool:
        """Whether a new connection stands since the last time this was asked."""
        connected, self._connected = self._connected, False
        return connected

    async def _read(self) -> None:
        while True:
            parts = await self._socket.recv_multipart(copy=False)
            self._connections.took(int(parts[-1].get(zmq.SRCFD)), BROKER, wire_bytes(parts))
            await self.put(tuple(part.bytes for part in parts))

    def _stands(self) -> None:
        self.is_connected, self.trouble = True, ""
        self._connected = True
        self.wake.set()

    def _failed(self, event: int) -> None:
        """The connection is lost, or was never made."""
        self.is_connected = False
        self.trouble = _TROUBLE.get(event, self.trouble)
        if event in _REFUSED:
            # ZeroMQ gives up when its key is refused; a broker may admit it a moment later.
            asyncio.get_running_loop().call_later(AFTER_REFUSAL_S, self._connect_again)

    def _connect_again(self) -> None:
        with suppress(zmq.ZMQError):
            self._socket.disconnect(self.endpoint)
        with suppress(zmq.ZMQError):
            self._socket.connect(self.endpoint)

    def close(self) -> None:
        """Flush for a moment and close; only at the end of the process."""
        self._reader.cancel()
        self._connections.close()
        self._context.destroy(linger=LINGER_MS)


@dataclass
class Pace:
    """How often one key may connect: a burst, then one connection every few seconds."""

    left: float = CONNECTIONS_BURST
    seen_s: float = 0.0

    def allows(self, now_s: float) -> bool:
        """Whether one more may come now."""
        earned = (now_s - self.seen_s) / CONNECTIONS_EVERY_S
        self.left, self.seen_s = min(CONNECTIONS_BURST, self.left + earned), now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


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
        self._descriptors: dict[bytes, int] = {}  # of connections that have spoken
        self._context = zmq.asyncio.Context()
        self._context.io_threads = 2
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(_ZAP)
        socket = self._socket = self._context.socket(zmq.ROUTER)
        set_common_options(socket)
        loop = asyncio.get_running_loop()
        self.connections = Connections(
            socket, LIMITS, note=lambda reason: loop.call_soon_threadsafe(self._note, reason)
        )
        self.tasks = (asyncio.create_task(self._admit()),)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
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
        """(connection, party whose key it has, frames) of the next message."""
        parts = await self._socket.recv_multipart(copy=False)
        try:
            user = str(parts[-1].get("User-Id"))
        except zmq.ZMQError:
            user = None
        descriptor, connection = int(parts[-1].get(zmq.SRCFD)), parts[0].bytes
        self.connections.took(descriptor, user, wire_bytes(parts[1:]))
        self._descriptors[connection] = descriptor
        return connection, user, tuple(part.bytes for part in parts[1:])

    async def send(self, connection: bytes, frames: Frames, sender: str = "") -> bool:
        """Hand frames to a connection; False when it is gone."""
        descriptor = self._descriptors.get(connection, -1)
        if not self.connections.has_room(descriptor, sender, wire_bytes(frames)):
            return True  # as when its queue is full
        try:
            await self._socket.send_multipart((connection, *frames), flags=zmq.NOBLOCK)
        except zmq.Again:
            return True  # its queue is full; the sender's stored bytes come again
        except zmq.ZMQError:
            self._descriptors.pop(connection, None)
            return False
        return True

    async def _admit(self) -> None:
        """ZAP: a key on the list gets in under its party's name, everybody else does not."""
        while True:
            version, request, _, _, _, mechanism, *credentials = await self._zap.recv_multipart()
            known = mechanism == b"CURVE" and len(credentials) == 1
            party = self._allowed.get(credentials[0]) if known else None
            if len(self._pace) > PACES_MAX:  # guests are many and their keys are free
                self._pace.clear()
            if party is None:
                self._note("a connection whose key is not on the list of members")
            elif not self._pace.setdefault(party, Pace()).allows(asyncio.get_running_loop().time()):
                self._note(f"cut {party}: it connects too often")
                party = None
            code, text = (b"200", b"OK") if party else (b"400", b"unknown key")
            name = (party or "").encode()
            await self._zap.send_multipart((version, request, code, text, name, b""))

    def _note(self, reason: str) -> None:
        if self._notes < NOTES_MAX:
            self._notes += 1
            self._refused(reason)

    def close(self) -> None:
        """Flush for a moment and close."""
        for task in self.tasks:
            task.cancel()
        self.connections.close()
        self._context.destroy(linger=LINGER_MS)
