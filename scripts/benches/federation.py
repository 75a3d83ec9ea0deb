"""Measure a federation of real processes on real sockets from outside: time, processor, memory.

It owns synthetic tables, starting and watching; the processes are those of production.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.data.bundled import SplitDataset
from hdpvfl_mq.data.cards import CARDS
from hdpvfl_mq.data.splits import held_out
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.runtime import status
from hdpvfl_mq.runtime.process import PARENT_VARIABLE
from schemas.config import RunManifest
from schemas.ids import COORDINATOR

Ids = NDArray[np.int64]
ROOT = Path(__file__).parents[2]
POLL_S = 0.05
_TICK = os.sysconf("SC_CLK_TCK")
HOSTS = 2  # number of processes that all passive parties share


def trained_ids(count: int) -> Ids:
    """Ids that the demo does not hold out for testing."""
    numbers = np.arange(count * 4 // 3 + 100)
    return numbers[~held_out(numbers, seed=0)][:count]


def made_up(active: Ids, passive: Ids, columns: tuple[int, int]) -> SplitDataset:
    """Two tables of random numbers about these ids."""
    dice = np.random.default_rng(0)
    tables = []
    for side, ids, count in (("active", active, columns[0]), ("passive", passive, columns[1])):
        label = {"y": (dice.random(len(ids)) > 0.5).astype(float)} if side == "active" else {}
        features = {f"{side}_{c}": dice.normal(size=len(ids)) for c in range(count)}
        tables.append(Table.of({"id": dice.permutation(ids), **label, **features}))
    return SplitDataset("made-up", CARDS["breast"], tables[0], tables[1])


# On a busy machine hundreds of parties take longer to gather than one waits for news by default.
_PATIENCE = ("patience_s = 600.0", "patience_s = 7200.0")


@dataclass
class Watched:
    """Measurements of one run; times in seconds."""

    cpu_at: dict[str, dict[str, float]] = field(default_factory=dict)  # phase -> process -> CPU
    at: dict[str, float] = field(default_factory=dict)  # when the coordinator entered a phase
    peak_mib: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0  # from the first process started to the last one ended
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    warm_round: int = 0  # rounds done at phase "warm", the first look after round 1

    def per_round(self, count: int) -> tuple[float, float]:
        """Wall and processor seconds per round, without one-time work in the first round.

        The end of the run, where parties witness each other's ledgers once, is not counted either.
        """
        first = "warm" if 0 < self.warm_round < count else "training"
        left = count - (self.warm_round if first == "warm" else 0)
        wall_s = self.at["trained"] - self.at[first]
        return wall_s / left, self.cpu_between(first, "trained") / left

    def cpu_between(self, first: str, last: str) -> float:
        """Processor time of all processes between two phases."""
        begun = self.cpu_at[first]
        return sum(used - begun.get(name, 0.0) for name, used in self.cpu_at[last].items())


def run_federation(
    folder: Path,
    manifest: RunManifest,
    dataset: SplitDataset,
    *,
    samples: Path | None = None,
    hosts: int = HOSTS,
) -> Watched:
    """Write a demo's files, start all processes and watch them to the end.

    All passive parties share `hosts` processes.
    """
    demo = Demo(folder / "runs" / manifest.run, manifest, dataset, 0)
    write_demo(demo, state=folder / "state", port=free_port())
    for party in demo.parties:
        settings = demo.settings(party)
        settings.write_text(settings.read_text().replace(*_PATIENCE))
    return run_processes(demo, samples=samples, hosts=hosts)


def run_processes(demo: Demo, *, samples: Path | None = None, hosts: int = HOSTS) -> Watched:
    """Start all processes of a demo whose files are written; `samples` is for their profiles."""
    passives = demo.parties[1:]
    groups = [group for k in range(hosts) if (group := passives[k::hosts])]
    began = time.perf_counter()
    children = {COORDINATOR: _start(demo, "broker", (COORDINATOR,), samples)}
    children[demo.parties[0]] = _start(demo, "parties", demo.parties[:1], samples)
    for number, group in enumerate(groups, 1):
        module = "parties" if len(group) == 1 else "scripts.benches.hosted"
        children[f"passive {number}"] = _start(demo, module, group, samples)
    try:
        seen = _watch(demo, children)
        seen.wall_s = time.perf_counter() - began
        return seen
    finally:
        for child in children.values():
            if child.poll() is None:
                child.kill()
            child.wait()


def _start(
    demo: Demo, module: str, names: tuple[str, ...], samples: Path | None
) -> subprocess.Popen[bytes]:
    wrapper = [] if samples is None else ["scripts.benches.sampled", str(samples / names[0])]
    with (demo.folder / f"{names[0]}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *wrapper, module, *(str(demo.settings(name)) for name in names)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )


def _watch(demo: Demo, children: dict[str, subprocess.Popen[bytes]]) -> Watched:
    seen = Watched()
    while True:
        phase = status.read(demo.folder / COORDINATOR / "status.json").get("phase", "")
        active = status.read(demo.folder / demo.parties[0] / "status.json")
        news, done = [phase] if phase else [], active.get("round", 0)
        if done and not seen.warm_round:
            news, seen.warm_round = [*news, "warm"], done
        if (done and done == active["rounds"]) or phase == "closed":
            news += ["training", "trained"]
        if "training" in news:  # phases may be over between two looks
            news = ["aligning", *news]
        for each in news:
            if each not in seen.at:
                seen.at[each] = time.perf_counter()
                seen.cpu_at[each] = {n: cpu_s(c.pid) for n, c in children.items()}
        for name, child in children.items():
            seen.peak_mib[name] = max(seen.peak_mib.get(name, 0.0), _peak_mib(child.pid))
            if child.poll() not in (None, 0):
                raise RuntimeError(f"{name} ended with {child.poll()}: {_log(demo)}")
        if phase == "closed":
            break
        time.sleep(POLL_S)
    for child in children.values():
        child.wait(120)
    names = (COORDINATOR, *demo.parties)
    seen.statuses = {n: status.read(demo.folder / n / "status.json") for n in names}
    return seen


def _log(demo: Demo) -> str:
    text = "".join(path.read_text() for path in demo.folder.glob("*.log"))
    return text[-2000:] or "it said nothing"


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _peak_mib(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")]
    return int(found[0]) / 1024 if found else 0.0
