"""Notifications to the service manager: ready, status line, watchdog.

It owns the datagrams of sd_notify(3); without NOTIFY_SOCKET it does nothing.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


class Manager:
    """The service manager of this process, if it has one."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")

    def tell(self, **fields: str | int) -> None:
        """Send one datagram without blocking; errors are ignored."""
        if not self._address:
            return
        text = "\n".join(f"{name}={str(value).splitlines()[0]}" for name, value in fields.items())
        # A socket name that begins with @ is in the abstract namespace.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto(text.encode(), address)
