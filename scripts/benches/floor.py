"""The floor of a round: its bytes, products, signatures, commits and noise, and nothing else.

    python -m scripts.benches.floor PASSIVES ROUNDS

It owns a harness without roles, schemas, ledger and checks, over the libraries that the project
uses: a ROUTER in asyncio with CURVE, one SQLite commit a turn, Ed25519 over SHA-256, numpy. Nobody
can write this protocol to be faster with these parts, so the ratio to the floor is the price of
everything else. Passive parties share two processes, as in `federation.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import resource
import sqlite3
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zmq
import zmq.asyncio
from nacl.signing import SigningKey, VerifyKey
from numpy.typing import NDArray

ROWS, ACTIVE_COLUMNS, PASSIVE_COLUMNS, LOCAL_STEPS = 3200, 11, 5, 3
GRID, ETA, WARM_UP = 1e-6, 0.1, 5
ALL, END, HELLO = b"*", b"end", b"hello"
_CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Stage:
    """What every process of the harness knows."""

    endpoint: str
    server_public: bytes
    server_secret: bytes
    passives: tuple[str, ...]
    rounds: int
    folder: str


def floor(passives: int, rounds: int) -> tuple[float, float]:
    """Wall and processor seconds a round of all processes."""
    public, secret = zmq.curve_keypair()
    names = tuple(f"passive-{number}" for number in range(passives))
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(f"tcp://127.0.0.1:{_port()}", public, secret, names, rounds, folder)
        results: Any = _CONTEXT.Queue()
        groups = [group for k in range(2) if (group := names[k::2])]
        children = [_CONTEXT.Process(target=_run, args=(_relay, stage, results))]
        children.append(_CONTEXT.Process(target=_run, args=(_active, stage, results)))
        for group in groups:
            children.append(_CONTEXT.Process(target=_run, args=(_hosted, stage, results, group)))
        for child in children:
            child.start()
        try:
            found = [results.get(timeout=600) for _ in children]
        finally:
            for child in children:
                child.join(5)
                if child.is_alive():
                    child.kill()
    wall_s = max(wall for wall, _ in found)
    return wall_s / rounds, sum(cpu for _, cpu in found) / rounds


def _port() -> int:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        return int(probe.bind_to_random_port("tcp://127.0.0.1"))


def _run(work: Any, stage: Stage, results: Any, *arguments: Any) -> None:
    results.put(asyncio.run(work(stage, *arguments)))


class Meter:
    """Wall and processor time after the warm-up; the processor time includes ZeroMQ's threads."""

    def __init__(self) -> None:
        self._wall_s = self._cpu_s = 0.0

    def see(self, done: int) -> None:
        """Start after this many rounds."""
        if done == WARM_UP:
            self._wall_s, self._cpu_s = time.perf_counter(), _cpu_s()

    def read(self) -> tuple[float, float]:
        """Seconds since the start."""
        return time.perf_counter() - self._wall_s, _cpu_s() - self._cpu_s


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _key(name: str) -> SigningKey:
    return SigningKey(hashlib.sha256(name.encode()).digest())


def _signed(key: SigningKey, values: NDArray[np.float64]) -> tuple[bytes, bytes]:
    body = np.rint(values / GRID).astype("<i4").tobytes()
    return key.sign(hashlib.sha256(body).digest()).signature, body


def _opened(key: VerifyKey, signature: bytes, body: bytes) -> NDArray[np.float64]:
    key.verify(hashlib.sha256(body).digest(), signature)
    return np.frombuffer(body, "<i4") * GRID


class Disk:
    """A table of bytes in a durable database: one commit a turn."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE turn (number INTEGER PRIMARY KEY, bytes BLOB)",
        ):
            self._db.execute(statement)

    def commit(self, *parts: bytes) -> None:
        """Write one turn."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO turn (bytes) VALUES (?)", [(part,) for part in parts])
        self._db.execute("COMMIT")


async def _relay(stage: Stage) -> tuple[float, float]:
    socket = zmq.asyncio.Context().socket(zmq.ROUTER)
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = stage.server_public, stage.server_secret
    socket.bind(stage.endpoint)
    meter, done, known = Meter(), 0, set[bytes]()
    passives = [name.encode() for name in stage.passives]
    while True:
        sender, to, *frames = await socket.recv_multipart()
        if to == HELLO:
            known.add(sender)
            if len(known) == len(passives) + 1:
                for name in known:
                    await socket.send_multipart([name, HELLO])
        elif to == END:
            return meter.read()
        else:
            for receiver in passives if to == ALL else [to]:
                await socket.send_multipart([receiver, sender, *frames])
            done += to == ALL
            meter.see(done)


async def _dealer(stage: Stage, name: str, context: Any) -> Any:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, name.encode())
    socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    socket.curve_serverkey = stage.server_public
    socket.connect(stage.endpoint)
    await socket.send_multipart([HELLO])
    await socket.recv_multipart()
    return socket


async def _active(stage: Stage) -> tuple[float, float]:
    dice = np.random.default_rng(0)
    X, y = dice.normal(size=(ROWS, ACTIVE_COLUMNS)), dice.integers(0, 2, ROWS)
    w, disk, key = np.zeros(ACTIVE_COLUMNS), Disk(Path(stage.folder) / "active"), _key("active")
    keys = {name.encode(): _key(name).verify_key for name in stage.passives}
    socket = await _dealer(stage, "active", zmq.asyncio.Context())
    meter = Meter()
    for number in range(stage.rounds + WARM_UP):
        shares: dict[bytes, NDArray[np.float64]] = {}
        stored = []
        while len(shares) < len(keys):
            sender, signature, body = await socket.recv_multipart()
            shares[sender] = _opened(keys[sender], signature, body)
            stored.append(body)
        received = sum(shares[name] for name in sorted(shares))
        noise = dice.normal(size=ROWS)
        signature, body = _signed(key, _sigmoid(X @ w + received) - y + noise)
        for _ in range(LOCAL_STEPS):
            w = w - ETA * (X.T @ (_sigmoid(X @ w + received) - y)) / ROWS
        disk.commit(*stored, body)
        await socket.send_multipart([ALL, signature, body])
        meter.see(number + 1)
    found = meter.read()
    await socket.send_multipart([END])
    return found


def _sigmoid(values: Any) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-values)))


async def _hosted(stage: Stage, names: tuple[str, ...]) -> tuple[float, float]:
    context, meter = zmq.asyncio.Context(), Meter()
    await asyncio.gather(*(_passive(stage, name, context, meter) for name in names))
    return meter.read()


async def _passive(stage: Stage, name: str, context: Any, meter: Meter) -> None:
    dice = np.random.default_rng(1)
    X, w = dice.normal(size=(ROWS, PASSIVE_COLUMNS)), np.zeros(PASSIVE_COLUMNS)
    disk, key, active = Disk(Path(stage.folder) / name), _key(name), _key("active").verify_key
    socket = await _dealer(stage, name, context)
    answer = b""
    for number in range(stage.rounds + WARM_UP):
        signature, body = _signed(key, X @ w + dice.normal(size=ROWS))
        disk.commit(answer, body)
        await socket.send_multipart([b"active", signature, body])
        _, signature, answer = await socket.recv_multipart()
        residual = np.clip(_opened(active, signature, answer), -5.0, 5.0)
        w = w - ETA * (X.T @ residual) / ROWS
        meter.see(number + 1)


if __name__ == "__main__":
    wall_s, cpu_s = floor(int(sys.argv[1]), int(sys.argv[2]))
    print(f"{1e3 * wall_s:.2f} ms a round, {1e3 * cpu_s:.2f} ms of processor time")
