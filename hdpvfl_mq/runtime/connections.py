"""Limits on the TCP connections of one ZeroMQ socket: their number, bytes in flight and silence.

It owns counting and cutting connections; it knows no message and no key list. libzmq limits neither
the frames of one multipart message nor the connections it accepts, and its high-water marks count
messages, not bytes. The kernel counts the bytes of every connection, so a thread compares that
count with the bytes the application has taken, and cuts connections over a limit (watch.py). The
path of a message costs only two more additions.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq

from hdpvfl_mq.runtime.tcp import Connection, borrowed, counted, peer_of
from hdpvfl_mq.runtime.watch import watch

_EVENT = struct.Struct("=Hi")  # first frame of a monitor's message: kind and descriptor
_MESSAGE_SLACK = 512  # allowance for heartbeats between two messages of a connection
_ASK_KERNEL_ABOVE = 2**18  # unacknowledged bytes above which the kernel is asked again
_MUCH = 2**16  # unread bytes of one connection that are watched closely
_OPENED = int(zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED)
_CLOSED = int(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
_FAILED = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
# Events at a party's own side: its key is refused, or nobody listens.
_TROUBLE = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_CONNECT_RETRIED)
_EVENTS = _TROUBLE | _OPENED | _CLOSED | _FAILED | int(zmq.EVENT_HANDSHAKE_SUCCEEDED)


@dataclass(frozen=True)
class Limits:
    """Limits for the connections of one socket."""

    unread_bytes: int  # received by the kernel, not yet taken as whole messages, of one connection
    unsent_bytes: int  # from one sender to one connection
    unsent_all_bytes: int  # over all connections; above it, a quarter of one sender's to each
    waiting: int = 256  # all connections that have not sent a message yet, or as many as members
    waiting_s: float = 10.0  # how long a connection may stay without a message
    waiting_member_s: float = 0.05  # and longer for each key that may connect: all may at once
    per_user: int = 4  # connections of one key


class Connections:
    """The connections of one socket, watched by the process's thread until `close`."""

    def __init__(
        self,
        monitored: Any,
        limits: Limits,
        *,
        note: Callable[[str], object],
        connected: Callable[[], object] = lambda: None,
        trouble: Callable[[int], object] = lambda event: None,
        overran: Callable[[float], object] = lambda since_s: None,
    ) -> None:
        """The four functions are called from the watch's thread.

        `overran` gets the time at which a connection was made that sent more than the largest
        message.
        """
        self._limits, self._note, self._connected = limits, note, connected
        self._trouble, self._overran = trouble, overran
        self._lock = threading.Lock()
        self._open: dict[int, Connection] = {}
        self.cut = 0
        self.members = 0  # how many keys may connect
        self._unsent = 0  # bytes given to libzmq that no peer has acknowledged; set by each look
        self._monitored = monitored
        endpoint = f"inproc://connections-{id(self)}"
        monitored.monitor(endpoint, _EVENTS)
        # A plain socket: the thread polls it, no event loop does. libzmq blocks while it is full.
        self.monitor: zmq.Socket[bytes] = zmq.Context.shadow(monitored.context.underlying).socket(
            zmq.PAIR
        )
        self.monitor.setsockopt(zmq.RCVHWM, 0)
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.monitor.connect(endpoint)
        self._watch = watch()
        self._watch.add(self)

    # -- the application's side ---------------------------------------------------------------

    def took(self, descriptor: int, user: str | None, size: int) -> int:
        """Count a whole message of `size` wire bytes that the application took from a connection.

        Returns the inode, which differs for a later connection with the same descriptor.
        """
        with self._lock:
            connection = self._open.get(descriptor) or self._opened(descriptor)
            if connection is None:
                return -1
            connection.taken += size + _MESSAGE_SLACK
            connection.user = user or connection.user
            return connection.inode

    def is_open(self, descriptor: int, inode: int) -> bool:
        """Whether this connection, not a later one with its descriptor, is open."""
        with self._lock:
            connection = self._open.get(descriptor)
            return connection is not None and connection.inode == inode

    def has_room(self, descriptor: int, inode: int, sender: str, size: int) -> bool:
        """Count `size` bytes of a sender as handed to libzmq; False if its share is used up.

        A connection that is closed has room: libzmq says that it is gone.
        """
        with self._lock:
            connection = self._open.get(descriptor)
            if connection is None or connection.inode != inode:
                return True
            if connection.handed - connection.acked > _ASK_KERNEL_ABOVE:
                self._forget_sent(connection)
            held = connection.held[sender]
            if held and held + size > self._limits.unsent_bytes:
                return False
            # Senders and receivers that work together would have a share for each pair of them.
            # A receiver that reads has little on its way, and is not slowed down by the others.
            if is_full := self._unsent + size > self._limits.unsent_all_bytes:
                self._forget_sent(connection)
            on_its_way = connection.handed - connection.acked
            if is_full and connection.unsent and on_its_way > self._limits.unsent_bytes // 4:
                return False
            self._unsent += size
            connection.held[sender] += size
            connection.handed += size
            connection.unsent.append((connection.handed, sender, size))
            return True

    def took_back(self, descriptor: int, inode: int, sender: str, size: int) -> None:
        """Uncount what `has_room` counted last: libzmq did not take it."""
        with self._lock:
            connection = self._open.get(descriptor)
            if connection is None or connection.inode != inode:
                return
            if connection.unsent and connection.unsent[-1] == (connection.handed, sender, size):
                connection.unsent.pop()
                connection.held[sender] -= size
            connection.handed -= size
            self._unsent -= size

    @property
    def moved_bytes(self) -> int:
        """Bytes that open connections have carried in both directions, as the kernel counts."""
        with self._lock:
            moved = [counted(connection) for connection in self._open.values()]
        return sum(sum(each) for each in moved if each is not None)

    @property
    def acked_bytes(self) -> int:
        """Bytes sent over open connections that their peers' kernels have acknowledged."""
        with self._lock:
            moved = [counted(connection) for connection in self._open.values()]
        return sum(each[0] for each in moved if each is not None)

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def close(self) -> None:
        """End the watch; call this before the socket is closed."""
        self._watch.remove(self)
        self._monitored.disable_monitor()
        self.monitor.close()

    # -- the watch ----------------------------------------------------------------------------

    def look(self, *, has_events: bool) -> bool:
        """Take the socket's events and cut connections over a limit."""
        if has_events:
            self._take_events()
        with self._lock:
            notes, unread = self._check()
        for note in notes:
            self._note(note)
        return unread > _MUCH

    def _take_events(self) -> None:
        while self.monitor.poll(0):
            # zmq.utils.monitor does the same and imports zmq.asyncio.
            event, descriptor = _EVENT.unpack(self.monitor.recv_multipart()[0])
            if event & (_FAILED | _CLOSED | _TROUBLE):
                self._trouble(event)
            if event & _FAILED:
                self._note("a connection without a valid CURVE handshake")
            elif event & _OPENED:
                with self._lock:
                    self._opened(descriptor)
            elif event & _CLOSED:
                with self._lock:
                    self._open.pop(descriptor, None)
            elif not event & _TROUBLE:
                self._connected()

    def _opened(self, descriptor: int) -> Connection | None:
        try:
            inode, address = os.fstat(descriptor).st_ino, peer_of(descriptor)
        except OSError:  # already closed
            return None
        known = self._open.get(descriptor)
        if known is not None and known.inode == inode:
            return known
        connection = Connection(descriptor, inode, address, time.monotonic())
        self._open[descriptor] = connection
        return connection

    def _check(self) -> tuple[list[str], int]:
        """Cut connections over a limit; returns notes about them and the most unread bytes."""
        notes, most, unsent = [], 0, 0
        for connection in list(self._open.values()):
            moved = counted(connection)
            if moved is None:
                del self._open[connection.descriptor]
                continue
            unsent += max(0, connection.handed - moved[0])
            connection.taken = min(connection.taken, moved[1])
            unread = moved[1] - connection.taken
            most = max(most, unread)
            if unread > self._limits.unread_bytes:
                self._cut(connection)
                self._overran(connection.since_s)
                whose = connection.user or f"a stranger at {connection.address}"
                notes.append(f"cut {whose}: {unread >> 20} MiB on their way that make no message")
        self._unsent = unsent
        notes += self._cut_waiting()
        return notes + self._cut_of_one_user(), most

    def _cut_waiting(self) -> list[str]:
        waiting = [c for c in self._open.values() if c.user is None]
        by_address = Counter(c.address for c in waiting)
        now, cut = time.monotonic(), 0
        waiting_s = self._limits.waiting_s + self._limits.waiting_member_s * self.members
        waiting.sort(key=lambda c: (-by_address[c.address], c.since_s))
        for place, connection in enumerate(waiting):
            is_over = len(waiting) - place > max(self._limits.waiting, self.members)
            if is_over or now - connection.since_s > waiting_s:
                self._cut(connection)
                cut += 1
        if not cut:
            return []
        return [f"cut {cut} connections that said nothing, most of them from {waiting[0].address}"]

    def _cut_of_one_user(self) -> list[str]:
        notes = []
        by_user = Counter(c.user for c in self._open.values() if c.user is not None)
        for user, count in by_user.items():
            if count > self._limits.per_user:
                own = sorted((c for c in self._open.values() if c.user == user), key=_age)
                for connection in own[: count - self._limits.per_user]:
                    self._cut(connection)
                notes.append(f"cut {count - self._limits.per_user} connections of {user}")
        return notes

    def _cut(self, connection: Connection) -> None:
        self.cut += 1
        del self._open[connection.descriptor]
        with suppress(OSError), borrowed(connection.descriptor) as tcp:
            if os.fstat(connection.descriptor).st_ino == connection.inode:
                tcp.shutdown(socket.SHUT_RDWR)

    def _forget_sent(self, connection: Connection) -> None:
        moved = counted(connection)
        if moved is None:
            return
        connection.acked = moved[0]
        connection.handed = max(connection.handed, connection.acked)  # `acked` has heartbeats too
        while connection.unsent and connection.unsent[0][0] <= connection.acked:
            _, sender, size = connection.unsent.popleft()
            connection.held[sender] -= size


def _age(connection: Connection) -> float:
    return connection.since_s
