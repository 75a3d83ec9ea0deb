"""ZeroMQ with CURVE: a party's connection to the broker, and the options of all sockets.

It owns a party's socket, its options and the task that reads it; it knows no message. One task
reads the socket into a bounded queue and is never cancelled while it receives (that would lose
messages); the consumer waits on an event.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import zmq
from zmq.utils import z85

from hdpvfl_mq.errors import NetworkError
from hdpvfl_mq.runtime.arrivals import QUEUE_MAX, Arrivals
from hdpvfl_mq.runtime.connections import Connections, Limits
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.loop_socket import LoopSocket
from hdpvfl_mq.runtime.tcp import wire_bytes
from hdpvfl_mq.wire.codec import Frames
from hdpvfl_mq.wire.versions import Window, read_notice
from schemas.envelope import MAX_ARRAY_BYTES

UNREAD_MESSAGES = 2  # libzmq holds this many per connection; one more may be arriving
LINGER_MS = 500
HANDSHAKE_MS, HANDSHAKE_MEMBER_MS = 5_000, 50
# A party pings and the broker answers, outside any journal, to check that both directions work:
# one damaged length field can swallow everything after it in one direction only.
PING, PONG = (b"ping",), (b"pong",)
# A party reconnects after this many checks without an answer. A long turn counts as one check. A
# check counts as none if the link carried more than BULK_BYTES: the answer waits behind bulk.
UNANSWERED_LOOKS = 6
# A party with many peers gives the broker longer, because the ping waits behind what all of them
# send, and asks as much less often. So many peers double the time.
PEERS_PER_LOOK = 12
BULK_BYTES = 16_384
# Bytes sent that the kernel has not acknowledged; above it, neither parts nor copies are sent.
ROOM_BYTES = 32 * 2**20
LOOK_S = 1.0
# A frame above its limit but below this is refused with a note; a larger one cuts the connection.
MAX_MESSAGE_BYTES = MAX_ARRAY_BYTES + 2**20
BROKER = "broker"
SOURCE = int(zmq.SRCFD)  # of a frame: the descriptor it came from
# Bytes that libzmq and the kernel may hold for one connection within the limits above.
LIMITS = Limits(
    unread_bytes=(UNREAD_MESSAGES + 1) * MAX_MESSAGE_BYTES + 16 * 2**20,
    unsent_bytes=64 * 2**20,  # twice what a party sends of parts before they are acknowledged
    unsent_all_bytes=512 * 2**20,
)

_REFUSED = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_TROUBLE: dict[int, str] = {
    zmq.EVENT_CONNECT_RETRIED: "unreachable",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "own key refused",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no common protocol",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake failed",
}
FINAL_TROUBLE = ("own key refused", "no common protocol")  # waiting does not end it
AFTER_REFUSAL_S = 1.0


def set_common_options(socket: zmq.Socket[bytes], members: int = 0) -> None:
    """Set the limits of a socket, and how it notices that a peer is gone.

    `members` is how many may connect to the broker: if all do so at once on a busy machine, a
    handshake takes longer, and work on a handshake that is given up is lost.

    ZeroMQ heartbeats stay off: with a low RCVHWM they abort the process when a connection breaks
    while its input is stopped (libzmq issues 3937 and 4767). The kernel notices idle peers that
    are gone, and a party asks its broker for an answer every other second.
    """
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS + HANDSHAKE_MEMBER_MS * members)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, QUEUE_MAX)
    socket.setsockopt(zmq.RCVHWM, UNREAD_MESSAGES)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, 3_000)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 2)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 2)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)


def _set_dealer_options(socket: zmq.Socket[bytes], broker_key: bytes, proxy: str | None) -> None:
    # Set no routing id: the broker gives every connection a new one. It would ignore a fixed id
    # after a reconnect until it notices that the old connection is dead.
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
    socket.curve_serverkey = z85.encode(broker_key)
    if proxy is not None:
        socket.setsockopt_string(zmq.SOCKS_PROXY, proxy)


class DealerLink(Arrivals):
    """A party's one outgoing connection, to the broker."""

    def __init__(
        self,
        endpoint: str,
        keys: Keys,
        broker_key: bytes,
        *,
        proxy: str | None = None,
        peers: int = 0,
    ) -> None:
        """`proxy` is host:port of a SOCKS5 proxy for outgoing connections.

        `peers` is how many parties share the broker's time with this one.
        """
        super().__init__()
        self.endpoint = endpoint
        self.bytes_sent = 0
        self._sent_before = 0  # by earlier connections
        self._connected = False
        self.is_connected = False
        self.trouble = ""  # why there is no connection, as far as ZeroMQ reports it
        self.broker_speaks: Window | None = None  # if the broker does not speak our version
        self._context = zmq.Context()
        self._socket = LoopSocket(self._context, zmq.DEALER)
        socket = self._socket.plain
        set_common_options(socket, peers)
        _set_dealer_options(socket, broker_key, proxy)
        self._take(keys)
        self._connections = self._monitored(socket)
        self._unanswered = 0
        self.peers = peers
        self._reader = self.watch(asyncio.create_task(self._read()))
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as broken:
            raise NetworkError(f"broker = {endpoint!r}: {broken}; check host and port") from None
        self._socket.look()

    def _monitored(self, socket: zmq.Socket[bytes]) -> Connections:
        loop = asyncio.get_running_loop()
        return Connections(
            socket,
            LIMITS,
            note=lambda reason: None,  # a party cannot refuse its broker; it reconnects
            connected=lambda: loop.call_soon_threadsafe(self._stands),
            trouble=lambda event: loop.call_soon_threadsafe(self._failed, event),
        )

    def _take(self, keys: Keys) -> None:
        self._socket.plain.curve_secretkey = z85.encode(keys.curve_secret)
        self._socket.plain.curve_publickey = z85.encode(keys.curve_public)

    def use(self, keys: Keys) -> None:
        """Connect again with these keys."""
        self._take(keys)
        self.is_connected = False
        self._connect_again()

    async def send(self, frames: Frames) -> None:
        """Queue frames; those that do not fit are dropped and sent again from the journal."""
        with suppress(zmq.Again):
            self._socket.send(frames)
            self.bytes_sent += sum(map(len, frames))
        self._socket.look()

    def has_room(self) -> bool:
        """Whether the connection has carried nearly all that was sent over it."""
        on_its_way = self.bytes_sent - self._sent_before - self._connections.acked_bytes
        return self.is_connected and on_its_way < ROOM_BYTES

    def take_connected(self) -> bool:
        """Whether a new connection was made since the last call."""
        connected, self._connected = self._connected, False
        return connected

    async def _read(self) -> None:
        while True:
            parts = await self._socket.receive()
            self._connections.took(int(parts[-1].get(SOURCE)), BROKER, wire_bytes(parts))
            frames = tuple(part.bytes for part in parts)
            if frames == PONG:
                self._unanswered = 0
            elif (spoken := read_notice(frames)) is not None:
                self.broker_speaks = spoken
            else:
                await self.put(frames)

    async def listen(self) -> None:
        """Ping the broker for ever; reconnect if no answer comes, as not every break is reported.

        Only for members: a broker answers nobody else.
        """
        moved = 0
        while True:
            slower = 1.0 + self.peers / PEERS_PER_LOOK
            await asyncio.sleep(LOOK_S * slower)
            before, moved = moved, self._connections.moved_bytes
            if not self.is_connected:
                self._unanswered = 0
            elif abs(moved - before) <= BULK_BYTES:  # else the answer comes behind what moves
                self._unanswered += 1
            if self._unanswered >= UNANSWERED_LOOKS:
                self._unanswered = 0
                self._connect_again()
            elif self.is_connected:
                with suppress(zmq.Again):
                    self._socket.send(PING)
                self._socket.look()

    def _stands(self) -> None:
        self.is_connected, self.trouble, self.broker_speaks = True, "", None
        self._sent_before = self.bytes_sent
        self._connected = True
        self.wake.set()

    def _failed(self, event: int) -> None:
        """Note that the connection is lost or could not be made."""
        self.is_connected = False
        self.trouble = _TROUBLE.get(event, self.trouble)
        if event in _REFUSED:
            # ZeroMQ gives up when a key is refused; the broker may admit the key a moment later.
            asyncio.get_running_loop().call_later(AFTER_REFUSAL_S, self._connect_again)

    def _connect_again(self) -> None:
        with suppress(zmq.ZMQError):
            self._socket.plain.disconnect(self.endpoint)
        with suppress(zmq.ZMQError):
            self._socket.plain.connect(self.endpoint)
        self._socket.look()

    def close(self) -> None:
        """Flush briefly and close; call this only at the end of the process."""
        self._reader.cancel()
        self._connections.close()
        self._socket.close()
        self._context.destroy(linger=LINGER_MS)
