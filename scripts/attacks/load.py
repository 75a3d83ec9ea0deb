"""Strangers and members that exhaust resources: connections, memory, disk.

It owns these attacks and their limits; it knows no message.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from schemas.ids import COORDINATOR
from scripts.attacks.raw_curve import RawCurve
from scripts.attacks.stage import LIMIT_MIB, Row, Stage, in_background, memory_mib, stage

CONNECTIONS = 2000
MESSAGE_BYTES = 4_400_000_000
PART = bytes(1_000_000)
SECONDS = 6.0
PATIENCE = 60  # seconds until the broker must have cut a connection


def idle_connections(folder: Path) -> Row:
    """A stranger opens connections and sends nothing."""

    def attack(on: Stage, stop: threading.Event) -> None:
        host, port = on.broker.bind.removeprefix("tcp://").rsplit(":", 1)
        held: list[socket.socket] = []
        while not stop.is_set():
            with suppress(OSError):
                held.append(socket.create_connection((host, int(port)), timeout=2.0))
            while len(held) > CONNECTIONS:
                held.pop(0).close()
            if len(held) == CONNECTIONS:
                stop.wait(0.01)
        for each in held:
            each.close()

    return _under(folder, f"{CONNECTIONS:,} idle TCP connections", "a stranger", attack)


def endless_message(folder: Path) -> Row:
    """A member sends frames of a message that never ends."""

    def attack(on: Stage, stop: threading.Event) -> None:
        sent, keys, server = 0, on.keys("passive-2"), on.keys(COORDINATOR).curve_public
        while not stop.is_set() and sent < MESSAGE_BYTES:
            with suppress(OSError):
                connection = RawCurve(on.broker.bind, keys, server)
                while not stop.is_set() and sent < MESSAGE_BYTES:
                    sent += connection.send_part(PART)
            stop.wait(0.1)

    return _under(folder, "one message of 4.4 GB in many frames", "passive-2", attack)


def _under(
    folder: Path, name: str, by: str, attack: Callable[[Stage, threading.Event], None]
) -> Row:
    """Speed of the other processes and memory of the broker, before and during an attack."""
    with stage(folder, epochs=20_000) as on:
        on.start()
        while not on.rounds():
            on.speed(0.2)
        calm = on.speed(SECONDS)
        child = on.started.children[COORDINATOR]
        before = memory_mib(child.pid, "VmHWM")
        with in_background(lambda stop: attack(on, stop)):
            on.speed(1.0)
            under = on.speed(SECONDS)
            for _ in range(PATIENCE):  # the attacker is slow on a busy machine
                if not _cuts(on):
                    on.speed(1.0)
            descriptors = len(list(Path(f"/proc/{child.pid}/fd").iterdir()))
        above = memory_mib(child.pid, "VmHWM") - before
        alive = all(each.poll() is None for each in on.started.children.values())
        cuts = _cuts(on)
    cost = (
        f"{above:.0f} MiB, {descriptors} descriptors; {under:.0f} rounds/s instead of {calm:.0f}, "
        "with the attacker on the same machine"
    )
    held = alive and bool(cuts) and above <= LIMIT_MIB and under >= calm / 2
    return Row(name, by, COORDINATOR, cuts[0] if cuts else "nothing", cost, held)


def _cuts(on: Stage) -> list[str]:
    return [text for text in on.refusals(COORDINATOR) if "cut " in text]


ATTACKS: dict[str, Callable[[Path], Row]] = {
    each.__name__: each for each in (idle_connections, endless_message)
}
