"""Q3: the time that privacy costs, over real sockets between real processes.

It owns the timed runs: the production broker, active and passive party on this machine, with
synthetic rows. The time is that of the training phase, from the first turn of the first round to
the end of the last round at both parties; starting processes and finding common rows are the same
for all methods. Other load on the machine changes wall time but not computing time, so both are
recorded. Encrypted training is timed in one process without sockets, on fewer rows, and scaled by
rows.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.app.demo.cluster import Cluster
from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.data.bundled import SplitDataset
from hdpvfl_mq.data.splits import held_out
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.ids import COORDINATOR
from schemas.methods import Descent, PassiveSide
from scripts.reproduction import he, methods, timed_party
from scripts.reproduction.data import PARTIES, synthetic
from scripts.reproduction.grid import Grid

COLUMNS = (10, 20)  # as many as Breast has
BATCH_ROWS = 3200
# Published noise really costs 10 to 100 times its nominal epsilon; at 0.1 a ledger accepts it.
EPSILON = 0.1
SOUND_DESCENT = "HDP-VFL sound, descent"


class TimedCluster(Cluster):
    """The demo's processes, with parties that record times."""

    def program_of(self, name: str) -> str:
        """The timed program for parties, the production program for the broker."""
        return super().program_of(name) if name == COORDINATOR else timed_party.__name__


def plans(epochs: int) -> dict[str, RunManifest]:
    """The methods that are timed; all but the last run the same rounds."""
    schedule = {"epochs": epochs, "batch_rows": BATCH_ROWS}
    descent = Descent(epochs=epochs, batch_rows=BATCH_ROWS, passive=PassiveSide(received_clip=1.0))
    made = {
        methods.NON_PRIVATE: methods.manifest("none", method=schedule),
        methods.PUBLISHED: methods.manifest("paper", epsilon=EPSILON, method=schedule),
        SOUND_DESCENT: methods.manifest("sound", epsilon=EPSILON, method=descent),
    }
    if epochs == 1:
        made[methods.SOUND] = methods.manifest("sound", epsilon=EPSILON)
    return made


def training_rows(rows: int) -> SplitDataset:
    """Synthetic data of which the demo keeps exactly this many rows for training."""
    more = synthetic(rows * 4 // 3 + 200, columns=COLUMNS, seed=0)
    test = held_out(more.active["id"], seed=0)
    keep = np.sort(np.r_[np.flatnonzero(~test)[:rows], np.flatnonzero(test)[:50]])
    return SplitDataset(more.name, more.card, more.active.take(keep), more.passive.take(keep))


def run_once(data: SplitDataset, plan: RunManifest, scratch: Path) -> list[tuple[float, float]]:
    """Wall and computing seconds from the beginning of training to each round's end."""
    folder = Path(tempfile.mkdtemp(dir=scratch)).absolute()
    alignment = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=50)
    named = methods.changed(plan, run="timed", alignment=alignment)
    demo = Demo(folder / "timed", named, data, 0)
    write_demo(demo, state=folder / "state", port=free_port())
    with TimedCluster(demo) as cluster:
        cluster.run(lambda _: None)
    stamps = [
        json.loads(demo.service(party).with_suffix(".stamps.json").read_text()) for party in PARTIES
    ]
    shutil.rmtree(folder)
    return ends(stamps)


def ends(stamps: list[list[Any]]) -> list[tuple[float, float]]:
    """For each round: seconds from the beginning of training until all parties finished the round,
    and their computing seconds."""
    began = [next(stamp for stamp in party if stamp[4] == "training") for party in stamps]
    first = min(stamp[0] for stamp in began)
    over = []
    for number in range(1, max(party[-1][5] for party in stamps) + 1):
        last = [next(stamp for stamp in party if stamp[5] >= number) for party in stamps]
        computed = sum(end[3] - start[2] for start, end in zip(began, last, strict=True))
        over.append((max(stamp[1] for stamp in last) - first, computed))
    return over


def by_epochs(grid: Grid, out: Path, repetition: int) -> list[dict[str, Any]]:
    """Seconds by epochs, from one long run of every method."""
    data, rows = training_rows(grid.timed_rows[0]), []
    for method, plan in plans(grid.timed_epochs).items():
        over = run_once(data, plan, _scratch(out))
        batches = len(over) // grid.timed_epochs
        for epoch in range(1, grid.timed_epochs + 1):
            place = {"part": "epochs", "method": method, "repetition": repetition}
            size = {"rows": grid.timed_rows[0], "epochs": epoch}
            seconds, computing = over[epoch * batches - 1]
            found = {"seconds": seconds, "computing": computing, "load": _load()}
            rows.append({**place, **size, **found})
    return rows


def by_rows(grid: Grid, out: Path, count: int, repetition: int) -> list[dict[str, Any]]:
    """Seconds of one epoch of this many rows, by every method once."""
    data, rows = training_rows(count), []
    for method, plan in plans(1).items():
        seconds, computing = run_once(data, plan, _scratch(out))[-1]
        place = {"part": "rows", "method": method, "repetition": repetition}
        found = {"seconds": seconds, "computing": computing, "load": _load()}
        rows.append({**place, "rows": count, "epochs": 1, **found})
    return rows


def q3(grid: Grid, out: Path) -> list[Callable[[], list[dict[str, Any]]]]:
    """Tasks of half a minute each; a repetition runs every method once."""
    if not grid.timed_rows:
        return []
    repetitions = range(grid.repetitions)
    epochs = [partial(by_epochs, grid, out, repetition) for repetition in repetitions]
    places = ((count, repetition) for count in grid.timed_rows for repetition in repetitions)
    return [*epochs, *(partial(by_rows, grid, out, *place) for place in places)]


def _scratch(out: Path) -> Path:
    scratch = out / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def _load() -> float:
    """Processes that ran or waited for a core during the last minute, these ones included."""
    return os.getloadavg()[0]


def encrypted(grid: Grid) -> list[dict[str, Any]]:
    """Time one epoch of encrypted training: measured rows, seconds for each step, agreement."""
    rows: list[dict[str, Any]] = []
    for make, measured in ((he.Paillier, grid.he_rows), (he.Ckks, min(10_000, 100 * grid.he_rows))):
        if not measured:
            continue
        try:
            numbers: Any = make()
        except ImportError:
            rows.append({"cipher": make.name, "missing": "not installed: requirements-he.txt"})
            continue
        dice = np.random.default_rng(1)
        X = {p: dice.normal(size=(measured, c)) for p, c in zip(PARTIES, COLUMNS, strict=True)}
        y = np.where(X[PARTIES[0]][:, 0] > 0, 1.0, -1.0)
        blocks, settings = he.matrices(X), he.Settings(1, BATCH_ROWS, 3.8, 1e-3)
        cost = he.Cost()
        found = np.concatenate(he.descend(blocks, y, settings, numbers, cost))
        plain = np.concatenate(he.descend(blocks, y, settings, he.PlainNumbers()))
        steps = {f"{step}_s": seconds for step, seconds in cost.seconds.items()}
        total = sum(cost.seconds.values())
        by_batch = cost.seconds["mask"] + cost.seconds["decrypt"]
        batches = -(-measured // BATCH_ROWS)
        rows.append(
            {
                "cipher": numbers.name,
                "rows": measured,
                "seconds": total,
                "seconds_10000_rows": (total - by_batch) / measured * 10_000
                + by_batch / batches * -(-10_000 // BATCH_ROWS),
                "bytes_10000_rows": cost.bytes / measured * 10_000,
                "largest_difference": float(np.abs(found - plain).max()),
                **steps,
            }
        )
    return rows
