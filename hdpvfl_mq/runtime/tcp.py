"""One TCP connection of a ZeroMQ socket: the kernel's counts and the bytes taken from it.

It owns reading the kernel's counters over libzmq's descriptor, and the size of frames on the wire;
it limits nothing and knows no key.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_TCP_INFO_BYTES = 136
_ACKED_AND_RECEIVED = 120  # offset of tcpi_bytes_acked, tcpi_bytes_received in struct tcp_info


@dataclass
class Connection:
    """One TCP connection, known by its descriptor and the inode behind it."""

    descriptor: int
    inode: int
    address: str
    since_s: float
    user: str | None = None  # the party that sends over this connection
    taken: int = 0  # wire bytes of messages that the application has received
    handed: int = 0  # wire bytes the application has given to libzmq
    acked: int = 0  # bytes of `handed` that were acknowledged when the kernel was last asked
    unsent: deque[tuple[int, str, int]] = field(default_factory=deque)  # end, sender, bytes
    held: Counter[str] = field(default_factory=Counter)  # the bytes of each sender in `unsent`


def wire_bytes(frames: Sequence[Any]) -> int:
    """Bytes of frames on a CURVE connection: each adds 33 bytes and its length field."""
    return sum(len(frame) + (35 if len(frame) < 223 else 42) for frame in frames)


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object over libzmq's descriptor; it is detached at the end, never closed."""
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        yield tcp
    finally:
        tcp.detach()


def peer_of(descriptor: int) -> str:
    """The address at the other end; OSError if the number now belongs to no TCP connection."""
    with borrowed(descriptor) as tcp:
        name = tcp.getpeername()
    if not isinstance(name, tuple):  # a local socket took the number of a closed connection
        raise OSError("not a TCP connection")
    return str(name[0])


def counted(connection: Connection) -> tuple[int, int] | None:
    """Bytes the peer has acknowledged and sent; None if the descriptor now belongs to another."""
    try:
        with borrowed(connection.descriptor) as tcp:
            if os.fstat(connection.descriptor).st_ino != connection.inode:
                return None
            info = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    acked, received = struct.unpack_from("=QQ", info, _ACKED_AND_RECEIVED)
    return acked, received
