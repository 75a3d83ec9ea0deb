"""Compare scoring in an open session, one person at a time and in batches, with bare round trips.

It owns the comparison. The services are those of production, each in its own process; requests go
through the active party's control socket. The bare round trip takes the same path (through a relay
and back) over TCP, with nothing signed, stored or computed.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.app.demo.cluster import Cluster
from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.app.scoring_manifest import manifest_of
from hdpvfl_mq.methods.recommend import recommend
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.model import LossSpec
from schemas.policy import PartyPolicy
from schemas.privacy import Budget
from scripts.benches.federation import cpu_s, made_up, trained_ids
from scripts.benches.row import Row, times

PEOPLE, COLUMNS = 20_000, (10, 10)
SINGLES, BATCHES, BATCH = 300, 20, 4000
WAIT_S = 120.0
Ask = Callable[..., dict[str, Any]]


def scores() -> list[Row]:
    """Milliseconds per single score, and scores per second in batches."""
    ids, manifest = trained_ids(PEOPLE), _manifest()
    dataset = made_up(ids, ids, COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder) / "runs" / "bench", manifest, dataset, 0)
        write_demo(demo, state=Path(folder) / "state", port=free_port())
        _allow(demo.settings("policy"))
        with Cluster(demo) as cluster:
            cluster.run(lambda _: None)
            one, many = _measured(Path(folder) / "state" / "active", manifest, cluster.pids)
    bare = _bare(SINGLES)
    own_ms = f"{1e3 * one[0]:.2f} ms, {1e3 * one[2]:.2f} ms CPU of all processes"
    bare_ms = f"bare {1e3 * bare:.2f} ms"
    rate = f"{BATCH / many:,.0f} a second"
    ratio = times(many / BATCH, one[0])
    return [
        Row(
            "one score, p50",
            own_ms,
            bare_ms,
            times(one[0], bare),
            key="scores.p50",
            value=1e3 * one[0],
        ),
        Row("one score, p99", f"{1e3 * one[1]:.2f} ms", bare_ms, times(one[1], bare)),
        Row(
            f"scores in batches of {BATCH}",
            rate,
            "one at a time",
            ratio,
            key="scores.each",
            value=many / BATCH,
        ),
    ]


def _manifest() -> RunManifest:
    budget = Budget(epsilon=1.0, delta=1e-5)
    parties = ("active", ("passive-1",))
    base = recommend("bench", parties, "sound", budget, LossSpec(name="logistic"))
    alignment = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=50)
    return RunManifest(**{**dict(base), "alignment": alignment})


def _allow(path: Path) -> None:
    policy = load_settings(PartyPolicy, path)
    changes = {"scoring": "disclosed", "queries_max": 10**6, "models_max": 10}
    path.write_text(dump_settings(PartyPolicy(**{**fields_of(policy), **changes})))


def _measured(
    state: Path, trained: RunManifest, pids: Sequence[int]
) -> tuple[tuple[float, float, float], float]:
    with control.Caller(state, what="hdpvfl party") as caller:
        return _asked(caller, trained, pids)


def _asked(
    caller: control.Caller, trained: RunManifest, pids: Sequence[int]
) -> tuple[tuple[float, float, float], float]:
    def ask(command: str, **fields: Any) -> dict[str, Any]:
        return caller.ask({"command": command, **fields})

    made = RunManifest(
        **{**dict(manifest_of(trained, "session", budget=None)), "absent_after_s": 3600.0}
    )
    ask("propose", manifest=json.loads(made.model_dump_json()), session=True)
    deadline = time.monotonic() + WAIT_S
    while ask("runs")["runs"]["session"]["phase"] != "training":
        if time.monotonic() > deadline:
            raise RuntimeError(f"the session does not open: {ask('runs')['runs']['session']}")
        time.sleep(0.05)
    ask("score", run="session", places=[0])  # warm up: one-time work
    before = sum(map(cpu_s, pids))
    singles = [_timed(ask, [place]) for place in range(SINGLES)]
    cpu = (sum(map(cpu_s, pids)) - before) / SINGLES
    many = [_timed(ask, list(range(k, k + BATCH))) for k in range(BATCHES)]
    ask("end_session", run="session")
    middle, late = (float(np.quantile(singles, share)) for share in (0.5, 0.99))
    return (middle, late, cpu), float(np.median(many))


def _timed(ask: Ask, places: list[int]) -> float:
    began = time.perf_counter()
    found = ask("score", run="session", places=places)["scores"]
    taken = time.perf_counter() - began
    if any(each["theta"] is None or each["without"] for each in found):
        raise RuntimeError("a score is missing")
    return taken


def _bare(count: int) -> float:
    """Median time of a round trip of 300 bytes through a relay."""
    here, at_relay = socket.socketpair()
    relay_out, there = socket.socketpair()

    def forward(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)

    for ends in ((at_relay, relay_out), (relay_out, at_relay), (there, there)):
        threading.Thread(target=forward, args=ends, daemon=True).start()
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        here.sendall(bytes(300))
        here.recv(65536)
        taken.append(time.perf_counter() - began)
    here.close()
    return float(np.median(taken))
