"""A CURVE client on a bare TCP socket: it can leave a message unfinished, which libzmq never does.

It owns the handshake (RFC 23 and 26) and frames with a chosen MORE flag; it knows no envelope.
"""

from __future__ import annotations

import os
import socket
import struct

from nacl.bindings import (
    crypto_box_afternm,
    crypto_box_beforenm,
    crypto_box_keypair,
    crypto_box_open_afternm,
)

from hdpvfl_mq.runtime.keys import Keys

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
_METADATA = b"\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"


class RawCurve:
    """One connection, authenticated with a member's key."""

    def __init__(self, endpoint: str, keys: Keys, server_key: bytes) -> None:
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self.tcp = socket.create_connection((host, int(port)), timeout=10.0)
        self._nonce = 0
        self._shake_hands(keys, server_key)

    def send_part(self, payload: bytes, *, more: bool = True) -> int:
        """Send one frame of a message; returns its bytes on the wire."""
        self._nonce += 1
        nonce = struct.pack(">Q", self._nonce)
        boxed = crypto_box_afternm(bytes([more]) + payload, b"CurveZMQMESSAGEC" + nonce, self._key)
        framed = _framed(b"\x07MESSAGE" + nonce + boxed, command=False)
        self.tcp.sendall(framed)
        return len(framed)

    def close(self) -> None:
        """Close the connection."""
        self.tcp.close()

    def _shake_hands(self, keys: Keys, server_key: bytes) -> None:
        self.tcp.sendall(_GREETING)
        self._read(64)
        public, secret = crypto_box_keypair()
        to_server = crypto_box_beforenm(server_key, secret)
        hello = crypto_box_afternm(bytes(64), b"CurveZMQHELLO---" + bytes(8), to_server)
        start = b"\x05HELLO\x01\x00" + bytes(72) + public + bytes(8) + hello
        self.tcp.sendall(_framed(start, command=True))
        welcome = self._command()
        opened = crypto_box_open_afternm(welcome[24:], b"WELCOME-" + welcome[8:24], to_server)
        short_key, cookie = opened[:32], opened[32:]
        vouch_nonce = os.urandom(16)
        vouching = crypto_box_beforenm(short_key, keys.curve_secret)
        vouch = crypto_box_afternm(public + server_key, b"VOUCH---" + vouch_nonce, vouching)
        self._key = crypto_box_beforenm(short_key, secret)
        self._nonce += 1
        nonce = struct.pack(">Q", self._nonce)
        plain = keys.curve_public + vouch_nonce + vouch + _METADATA
        boxed = crypto_box_afternm(plain, b"CurveZMQINITIATE" + nonce, self._key)
        initiate = b"\x08INITIATE" + cookie + nonce + boxed
        self.tcp.sendall(_framed(initiate, command=True))
        if not self._command().startswith(b"\x05READY"):
            raise ConnectionError("the broker did not let this key in")

    def _command(self) -> bytes:
        flags = self._read(1)[0]
        size = struct.unpack(">Q", self._read(8))[0] if flags & 2 else self._read(1)[0]
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.tcp.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


def _framed(payload: bytes, *, command: bool) -> bytes:
    flags = 4 if command else 0
    if len(payload) < 256:
        return bytes([flags, len(payload)]) + payload
    return bytes([flags | 2]) + struct.pack(">Q", len(payload)) + payload
