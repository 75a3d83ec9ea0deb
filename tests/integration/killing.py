"""Kill and restart real processes, and check what must be the same afterwards.

Processes are forked, because a test needs quick restarts to make many of them.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hdpvfl_mq.app.commands.audit import AuditOptions, gather
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.runtime import snapshots, status
from schemas.ids import COORDINATOR
from tests.integration.forked import Started
from tests.integration.processes import Processes, processes

END_S = 120.0
PAUSE_S = 0.6  # between two kills, at most
OPTIONS = {"passives": 1, "epochs": 12, "batch": 24}


@dataclass
class Forks:
    """The processes of one run."""

    real: Processes
    codes: dict[str, int] = field(default_factory=dict)

    @property
    def running(self) -> dict[str, subprocess.Popen | Started]:
        return self.real.children

    def start(self, *names: str) -> None:
        self.real.start(*names)

    def kill(self, name: str) -> None:
        child = self.running.pop(name)
        child.kill()
        child.wait()

    def has_snapshot(self, name: str) -> bool:
        """Whether a process that is started now finds a short cut to where it was."""
        demo = self.real.demo
        if name == COORDINATOR:
            return (demo.folder / name / "snapshot").exists()
        return (self.real.state / name / "snapshots" / demo.folder.name).exists()

    def reap(self) -> bool:
        """Collect who has ended; whether everybody has."""
        for name, child in list(self.running.items()):
            if (code := child.poll()) is not None:
                del self.running[name]
                self.codes[name] = code
                assert code == 0, (name, self.real.said(name))
        return not self.running

    def wait(self) -> None:
        end = time.monotonic() + END_S
        while not self.reap():
            assert time.monotonic() < end, {n: self.real.said(n)[-300:] for n in self.running}
            time.sleep(0.02)

    def to_the_end(self) -> None:
        """Start everybody and wait until all have ended."""
        try:
            self.start()
            self.wait()
        finally:
            self.stop()

    def stop(self) -> None:
        for name in list(self.running):
            self.kill(name)

    def round(self) -> int:
        """How far the active party says it is."""
        fields = status.read(self.real.demo.folder / self.real.demo.parties[0] / "status.json")
        return int(fields.get("round", 0))


@dataclass(frozen=True)
class Result:
    """What must not depend on any kill."""

    weights: dict[str, list[float]]
    ledgers: dict[str, list]
    evidence: Evidence


def result_of(real: Processes) -> Result:
    folder = real.demo.folder
    return Result(
        {
            p: json.loads((folder / p / "model.json").read_text())["weights"]
            for p in real.demo.parties
        },
        {p: real.entries(p) for p in real.demo.parties},
        gather(AuditOptions(folder, ledgers=real.state)),
    )


def undisturbed(folder: Path, **options) -> Result:
    with processes(folder, secrets=True, **{**OPTIONS, **options}) as real:
        Forks(real).to_the_end()
        return result_of(real)


@dataclass
class Tally:
    """What a campaign of kills has seen."""

    killed: Counter = field(default_factory=Counter)  # by process
    with_snapshot: int = 0  # restarts that found one
    waits_s: list[float] = field(default_factory=list)  # from a restart to the next round


def disturbed(
    folder: Path, kills: int, dice: random.Random, tally: Tally, *, settled: int, **options
) -> Result:
    """One run in which processes are killed until the tally has so many.

    After every `settled` kills the run makes a round first: on a busy machine all kills would
    otherwise hit processes that have just started.
    """
    with processes(folder, secrets=True, **{**OPTIONS, **options}) as real:
        forks = Forks(real)
        try:
            forks.start()
            while tally.killed.total() < kills:
                time.sleep(dice.uniform(0.0, PAUSE_S))
                forks.reap()
                if len(forks.running) < len(real.names):
                    break  # the run is over: a kill now would only be one of a farewell
                # Those killed least come first: a short campaign hits every kind of process.
                name = min(forks.running, key=lambda n: (tally.killed[n], dice.random()))
                forks.kill(name)
                tally.killed[name] += 1
                tally.with_snapshot += forks.has_snapshot(name)
                forks.start(name)
                if tally.killed.total() % 5 == 0 and forks.round():
                    tally.waits_s += _next_round(forks)
                elif tally.killed.total() % settled == 0:
                    _next_round(forks)
            forks.wait()
        finally:
            forks.stop()
        return result_of(real)


def _next_round(forks: Forks) -> list[float]:
    began, before = time.monotonic(), forks.round()
    while time.monotonic() - began < 30.0:
        if forks.reap() or len(forks.running) < len(forks.real.names):
            return []  # the run ended in the meantime
        if forks.round() > before:
            return [time.monotonic() - began]
        time.sleep(0.01)
    raise AssertionError("no round within 30 s of a restart")


def assert_same(found: Result, expected: Result) -> None:
    assert found.weights == expected.weights
    assert found.ledgers == expected.ledgers
    payloads: dict[str, set[bytes]] = {}
    for envelope in found.evidence.envelopes:
        release = getattr(envelope.message, "release", None)
        if release is not None:
            payloads.setdefault(release.release_id, set()).add(release.tensor.data)
    assert all(len(sent) == 1 for sent in payloads.values())
    verdicts = audit(found.evidence)
    assert exit_code(verdicts) == 0, [v for v in verdicts if not v.passed]


def campaign(folder: Path, kills: int, seed: int, *, settled: int = 20, **options) -> Tally:
    """Runs until that many processes were killed."""
    dice, tally, runs = random.Random(seed), Tally(), 0
    expected = undisturbed(folder / "calm", **options)
    while tally.killed.total() < kills:
        runs += 1
        here = folder / f"run-{runs}"
        found = disturbed(here, kills, dice, tally, settled=settled, **options)
        assert_same(found, expected)
        shutil.rmtree(here)
    return tally


def snapshot_often() -> None:
    """Take snapshots in short runs too, on a fast machine too: else few restarts find one."""
    snapshots.EVERY_CPU_S, snapshots.LOOK_S, snapshots.REST_BY_COST = 0.0, 0.0, 2.0


def small_disk(limit: int) -> None:
    """No file may grow above this, as on a disk with that little left."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
