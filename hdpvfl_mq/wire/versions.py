"""Versions of the protocol: which are spoken here, and what a broker answers to any other.

It owns the window of versions, the sentences and the notice; it knows no socket. A program speaks
its newest version and the previous one. The notice keeps its form in every version, so a program
that is too old or too new for its broker can read it.
"""

from __future__ import annotations

from typing import Any

from hdpvfl_mq.errors import PeerError
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import OLDEST_VERSION

Window = tuple[int, int]  # the oldest and the newest version
SPOKEN: Window = (OLDEST_VERSION, PROTOCOL_VERSION)
_NOTICE = b"versions"
_NUMBER_MAX = 2**16


class VersionError(PeerError):
    """Frames of a version that is not spoken here."""


def check_version(stated: Any, spoken: Window = SPOKEN) -> None:
    """Refuse frames of another version, and say which side must be upgraded."""
    if not isinstance(stated, int) or isinstance(stated, bool):
        raise PeerError("header breaks its schema: version: a whole number is wanted")
    if spoken[0] <= stated <= spoken[1]:
        return
    if stated < spoken[0]:
        remedy = "upgrade the sender"
    else:
        remedy = "upgrade this side first, or set 'speaks' at the sender"
    raise VersionError(f"protocol version {stated}; this program speaks {_range(spoken)}: {remedy}")


def notice(spoken: Window) -> tuple[bytes, ...]:
    """What a broker answers to frames of a version that it does not speak."""
    return (_NOTICE, f"{spoken[0]} {spoken[1]}".encode())


def read_notice(frames: tuple[bytes, ...]) -> Window | None:
    """The versions that the broker speaks; None if the frames are not a notice."""
    if len(frames) != 2 or frames[0] != _NOTICE:
        return None
    words = frames[1].split()
    if len(words) != 2 or not all(word.isdigit() and len(word) <= 5 for word in words):
        return None
    low, high = int(words[0]), int(words[1])
    return (low, high) if 0 < low <= high <= _NUMBER_MAX else None


def remedy(broker: Window, speaks: int) -> str:
    """The sentence for the operator of a party whose version the broker does not speak."""
    known = f"the broker speaks {_range(broker)} of the protocol and this party {speaks}"
    if speaks < broker[0]:
        return f"{known}: upgrade this party"
    if broker[1] in range(SPOKEN[0], SPOKEN[1] + 1):
        return f"{known}: upgrade the broker first, or set speaks = {broker[1]} in party.toml"
    return f"{known}: upgrade the broker first"


def _range(window: Window) -> str:
    low, high = window
    return f"version {low}" if low == high else f"versions {low} to {high}"
