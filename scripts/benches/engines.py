"""Compare the engines with each other: the products of one round over the same rows, side by side.

It owns the rows, the workers and the order of measurements. Engines are measured in turn and the
best of some turns counts, because other programs disturb a machine for seconds at a time.
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
from pathlib import Path

import numpy as np

from hdpvfl_mq.engine.cluster import ClusterEngine
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.rows_folder import RowsFolder
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.methods.private_model import statistics
from hdpvfl_mq.runtime.profile import numeric_profile, pin_threads
from scripts.benches.row import Row, times

ROWS, COLUMNS = 1_000_000, 300
WORKERS, TURNS = 2, 3
CLIP, EXPONENT = 1.0, -30

Product = Callable[[ColumnBlock], object]


def engines() -> list[Row]:
    """One row for each product: two processes against one, and a Dask cluster against those."""
    dice = np.random.default_rng(0)
    w = statistics.weight_grid(dice.normal(size=COLUMNS) / COLUMNS)
    z = statistics.clipped(dice.normal(size=ROWS), CLIP)
    whole = slice(0, ROWS)
    products: dict[str, Product] = {
        "scores X w": lambda block: block.scores(whole, w).expose(),
        "gradient X'z": lambda block: block.gradient(whole, z),
        "exact scores": lambda block: statistics.scores(block, whole, w),
        "exact X'z": lambda block: statistics.moments(
            block, z, clip=CLIP, exponent=EXPONENT
        ).expose(),
        "exact X'X": lambda block: statistics.gram(block, ROWS, exponent=EXPONENT).expose(),
    }
    rows, whole_s = [], dict.fromkeys(("local", "processes", "dask"), 0.0)
    with pin_threads(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(_cluster(folder))
        made: dict[str, Engine] = {
            "local": LocalEngine(),
            "processes": ProcessEngine(WORKERS),
            "dask": ClusterEngine(
                address, profile=numeric_profile, folder=RowsFolder(folder / "rows")
            ),
        }
        blocks = {name: _block(engine) for name, engine in made.items()}
        for product, compute in products.items():
            took = _measured(compute, blocks, turns=1 if product.endswith("X'X") else TURNS)
            rows += _rows(product, took)
            whole_s = {name: whole_s[name] + took[name] for name in whole_s}
    return rows + _rows("all of these", whole_s)


def _rows(product: str, took: dict[str, float]) -> list[Row]:
    what = f"{product}, {ROWS:,} x {COLUMNS}"
    local, processes, dask = took["local"], took["processes"], took["dask"]
    ours = f"processes, {WORKERS} workers {processes:.2f} s"
    return [
        Row(what, ours, f"local {local:.2f} s", times(processes, local)),
        Row("  the same", f"dask {dask:.2f} s", ours, times(dask, processes)),
    ]


def _measured(compute: Product, blocks: dict[str, ColumnBlock], *, turns: int) -> dict[str, float]:
    took = dict.fromkeys(blocks, float("inf"))
    found: dict[str, object] = {}
    for _ in range(turns):
        for name, block in blocks.items():
            began = time.perf_counter()
            found[name] = compute(block)
            took[name] = min(took[name], time.perf_counter() - began)
    if not all(np.array_equal(each, found["local"]) for each in found.values()):  # type: ignore[arg-type]  # arrays
        raise AssertionError("engines differ in their bits")
    return took


def _block(engine: Engine) -> ColumnBlock:
    """The same rows in an engine's room, norms below 1."""
    held, dice = engine.room((ROWS, COLUMNS), np.float64), np.random.default_rng(1)
    for start in range(0, ROWS, 10_000):
        dice.random(out=held.X[start : start + 10_000])
        held.X[start : start + 10_000] /= COLUMNS
    return ColumnBlock(held)


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """A scheduler and workers with one thread each, on the loopback interface."""
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
        yield json.loads(file.read_text())["address"]
    finally:
        for process in started:
            process.kill()
            process.wait()
