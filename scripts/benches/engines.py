"""Compare the engines with each other: the products of one round over the same rows, side by side.

It owns the rows, the workers and the order of measurements. Engines are measured in turn and the
best of some turns counts, because other programs disturb a machine for seconds at a time. The
processor time of an engine is that of its busiest process: no machine is faster than that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.rows_folder import RowsFolder
from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.methods.private_model import statistics
from hdpvfl_mq.runtime.profile import numeric_profile
from scripts.benches.row import Row, times

ROWS, COLUMNS = 1_000_000, 300
WORKERS, TURNS = 2, 3
CLIP, EXPONENT = 1.0, -30

Product = Callable[[ColumnBlock], object]


def engines() -> list[Row]:
    """One row for each product: two processes against one, and a Dask cluster against those."""
    from hdpvfl_mq.engine.cluster import ClusterEngine  # noqa: PLC0415 - slow to load

    dice = np.random.default_rng(0)
    w = statistics.weight_grid(dice.normal(size=COLUMNS) / COLUMNS)
    z = statistics.clipped(dice.normal(size=ROWS), CLIP)
    every = slice(0, ROWS)
    products: dict[str, Product] = {
        "scores X w": lambda block: block.scores(every, w).expose(),
        "gradient X'z": lambda block: block.gradient(every, z),
        "exact scores": lambda block: statistics.scores(block, every, w),
        "exact X'z": lambda block: statistics.moments(
            block, z, clip=CLIP, exponent=EXPONENT
        ).expose(),
        "exact X'X": lambda block: statistics.gram(block, ROWS, exponent=EXPONENT).expose(),
    }
    rows, whole = list[Row](), dict.fromkeys(("local", "processes", "dask"), Took(0.0, 0.0))
    with pin_threads(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, dask_pids = stack.enter_context(dask_cluster(folder))
        processes = ProcessEngine(WORKERS)
        cluster = ClusterEngine(
            address, profile=numeric_profile, folder=RowsFolder(folder / "rows")
        )
        stack.callback(processes.close)
        stack.callback(cluster.close)
        cluster.wait_for_workers(WORKERS)
        made = {
            "local": Measured(_block(LocalEngine()), lambda: ()),
            "processes": Measured(_block(processes), lambda: processes.pids),
            "dask": Measured(_block(cluster), lambda: dask_pids),
        }
        for product, compute in products.items():
            took = _measured(compute, made)
            rows += engine_rows(product, (ROWS, COLUMNS), took)
            whole = {name: whole[name] + took[name] for name in whole}
    keys = ("engines.processes", "engines.dask")
    return rows + engine_rows("all of these", (ROWS, COLUMNS), whole, keys=keys)


@dataclass(frozen=True)
class Measured:
    """Rows in an engine's room, and the processes that compute besides this one."""

    block: ColumnBlock
    pids: Callable[[], tuple[int, ...]]


@dataclass(frozen=True)
class Took:
    """Seconds, and processor seconds of the busiest process."""

    wall_s: float
    cpu_s: float

    def __add__(self, other: Took) -> Took:
        return Took(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def best(self, other: Took) -> Took:
        """The smaller wall time and the smaller processor time of two measurements."""
        return Took(min(self.wall_s, other.wall_s), min(self.cpu_s, other.cpu_s))


def engine_rows(
    product: str,
    shape: tuple[int, int],
    took: dict[str, Took],
    keys: tuple[str, str] = ("", ""),
) -> list[Row]:
    """Two processes against one, and a Dask cluster against those."""
    what = f"{product}, {shape[0]:,} x {shape[1]}"
    local, processes, dask = took["local"], took["processes"], took["dask"]
    ours = f"processes, {WORKERS} workers {processes.wall_s:.2f} s"
    return [
        _row(what, (ours, processes), (f"local {local.wall_s:.2f} s", local), keys[0]),
        _row("  the same", (f"dask {dask.wall_s:.2f} s", dask), (ours, processes), keys[1]),
    ]


def _row(what: str, ours: tuple[str, Took], theirs: tuple[str, Took], key: str) -> Row:
    (name, own), (other_name, other) = ours, theirs
    return Row(
        what,
        name,
        other_name,
        times(own.wall_s, other.wall_s),
        times(own.cpu_s, other.cpu_s),
        key=key,
        value=own.wall_s / max(other.wall_s, 1e-12),
    )


def _measured(compute: Product, engines: dict[str, Measured]) -> dict[str, Took]:
    took, found = dict[str, Took](), dict[str, object]()
    for _ in range(TURNS):
        for name, engine in engines.items():
            began, before = time.perf_counter(), busy_s(engine.pids())
            found[name] = compute(engine.block)
            wall_s, after = time.perf_counter() - began, busy_s(engine.pids())
            busiest_s = max(after[pid] - before.get(pid, 0.0) for pid in after)
            took[name] = Took(wall_s, busiest_s).best(took.get(name, Took(wall_s, busiest_s)))
    if not all(np.array_equal(each, found["local"]) for each in found.values()):  # type: ignore[arg-type]  # arrays
        raise AssertionError("engines differ in their bits")
    return took


def busy_s(pids: tuple[int, ...]) -> dict[int, float]:
    """Processor seconds so far of this process and these."""
    found = {os.getpid(): time.process_time()}
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _block(engine: Engine) -> ColumnBlock:
    """The same rows in an engine's room, norms below 1."""
    held, dice = engine.allocate_rows((ROWS, COLUMNS), np.float64), np.random.default_rng(1)
    for start in range(0, ROWS, 10_000):
        dice.random(out=held.X[start : start + 10_000])
        held.X[start : start + 10_000] /= COLUMNS
    return ColumnBlock(held)


@contextmanager
def dask_cluster(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A scheduler and workers with one thread each, on the loopback interface, and their pids."""
    file = folder / "scheduler.json"
    common = ("--scheduler-file", str(file), "--no-dashboard")
    one = ("--no-nanny", "--nthreads", "1", "--local-directory", str(folder))
    programs: list[tuple[str, ...]] = [("scheduler", *common, "--host", "127.0.0.1", "--port", "0")]
    programs += [("worker", *common, *one)] * WORKERS
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{name}", *options],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for name, *options in programs
    ]
    try:
        while not file.exists() or not file.read_text():
            time.sleep(0.05)
        pids = tuple(process.pid for process in started)
        yield json.loads(file.read_text())["address"], pids
    finally:
        for process in started:
            process.kill()
            process.wait()
