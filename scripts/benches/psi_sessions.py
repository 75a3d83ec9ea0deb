"""Measure time and memory of entity resolution, with one process per party.

It owns the measuring and tests nothing. `measure("oprf", parties=2, ids=1_000_000)` returns wall
and processor seconds, the largest peak memory of a party and the bytes sent. Run as a program:
`python -m scripts.benches.psi_sessions METHOD PARTIES IDS`.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hdpvfl_mq.psi import (
    Block,
    Outgoing,
    Terms,
    Workspace,
    commit,
    nonce_of,
    open_session,
)
from hdpvfl_mq.psi.ids import rules_digest
from schemas.config import IdRules

_CONTEXT = multiprocessing.get_context("fork")


def party_ids(number: int, parties: int, ids: int) -> list[bytes]:
    """Ids of one party: half are common to all parties, the others are its own."""
    half = ids // 2
    own = range(half + number * (ids - half), half + (number + 1) * (ids - half))
    return [b"%016d" % each for part in (range(half), own) for each in part]


def _secret(number: int) -> bytes:
    return bytes([number + 1]) * 32


class _Mail:
    """Sends payloads as files in memory and notices through pipes, so neither side waits."""

    def __init__(self, names: tuple[str, ...], folder: Path) -> None:
        self.names, self.folder = names, folder
        self.inboxes = [_CONTEXT.SimpleQueue() for _ in names]
        self.bytes_sent = 0

    def send(self, sender: str, outgoing: tuple[Outgoing, ...]) -> None:
        for message in outgoing:
            for receiver in message.to:
                path = self.folder / f"{sender}-{self.bytes_sent}"
                path.write_bytes(message.payload)
                notice = (sender, message.stage, message.index, message.last, path, message.meta)
                self.inboxes[self.names.index(receiver)].put(notice)
                self.bytes_sent += len(message.payload)

    def receive(self, number: int) -> tuple[str, str, int, bool, bytes, tuple[int, ...]]:
        sender, stage, index, last, path, meta = self.inboxes[number].get()
        payload = path.read_bytes()
        path.unlink()
        return sender, stage, index, last, payload, meta


def _party(number: int, terms: Terms, ids: int, mail: _Mail, results: Any, ready: Any) -> None:
    own_ids = party_ids(number, len(mail.names), ids)
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ready.wait()
    started, cpu_started = time.perf_counter(), time.process_time()
    me = mail.names[number]
    work = Workspace(own_ids, _secret(number))
    session = open_session(terms, me, work)
    mail.send(me, session.start(work))
    while not session.is_finished:
        session, outgoing = session.receive(work, Block(*mail.receive(number)))
        mail.send(me, outgoing)
    assert session.is_found
    usage = resource.getrusage(resource.RUSAGE_SELF)
    results.put(
        {
            "common": len(session.positions(work)),
            "wall_s": time.perf_counter() - started,
            "cpu_s": time.process_time() - cpu_started,
            "ids_mib": memory_before / 1024,
            "peak_mib": usage.ru_maxrss / 1024,
            "bytes_sent": mail.bytes_sent,
        }
    )


def measure(method: Any, *, parties: int, ids: int, **terms: Any) -> dict[str, float]:
    """Run one entity resolution with each party in its own process."""
    names = tuple(f"party{number}" for number in range(parties))
    commitments = tuple(commit(nonce_of(_secret(n)), name) for n, name in enumerate(names))
    profile = rules_digest(IdRules())
    agreed = Terms(method, names[0], names[1:], b"\7" * 32, commitments, profile, **terms)
    results, ready = _CONTEXT.Queue(), _CONTEXT.Barrier(parties)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        mail = _Mail(names, Path(folder))
        workers = [
            _CONTEXT.Process(target=_party, args=(n, agreed, ids, mail, results, ready))
            for n in range(parties)
        ]
        for worker in workers:
            worker.start()
        reports = [results.get() for _ in workers]
        for worker in workers:
            worker.join()
    assert {report["common"] for report in reports} == {ids // 2}
    wall_s = max(report["wall_s"] for report in reports)
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(sum(report["cpu_s"] for report in reports), 2),
        "ids_per_s": round(ids / wall_s),
        "peak_mib": round(max(report["peak_mib"] for report in reports)),
        "ids_mib": round(max(report["ids_mib"] for report in reports)),
        "sent_mib": round(sum(report["bytes_sent"] for report in reports) / 2**20, 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], parties=int(sys.argv[2]), ids=int(sys.argv[3]))))
