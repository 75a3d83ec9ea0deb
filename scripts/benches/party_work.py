"""Compare engines over everything that one party computes: from its file to its noised releases.

It owns the file, the steps and their order. A step is what a passive party does in a run of one
round with one partner: prepare the file, hash and order ids, put rows in order, X'X, X'z, scores,
noise. Each engine runs in a new process, in turn, and the best of some turns counts for each step.
`python -m scripts.bench --only work` (100,000 x 300, `--full` 1,000,000 x 300) runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.without_pandas import leave_pandas_out
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.methods.private_model import statistics
from hdpvfl_mq.privacy.noise import ladder
from hdpvfl_mq.psi import elements, normalise, order
from hdpvfl_mq.runtime.profile import numeric_profile
from schemas.config import IdRules
from schemas.data import DataSettings
from scripts.benches.engines import Took, busy_s, dask_cluster, engine_rows
from scripts.benches.row import Row

ROWS, COLUMNS, GROUP_ROWS = 1_000_000, 300, 10_000
WORKERS, TURNS = 2, 2
CLIP, EXPONENT, KEY = 1.0, -30, b"k" * 32
KINDS = ("local", "processes", "dask")

Step = tuple[str, Callable[[], object]]


def party_work(cache: Path, shape: tuple[int, int] = (ROWS, COLUMNS)) -> Iterator[Row]:
    """For CSV and Parquet, a row for each step and one for all of them."""
    for suffix in ("parquet", "csv"):
        path, found = _file(cache, suffix, shape), dict[str, dict[str, Took]]()
        digests = set[str]()
        for _ in range(TURNS):
            for kind in KINDS:
                digest, took = _run(kind, path)
                digests.add(digest)
                _best(found.setdefault(kind, {}), took)
        if len(digests) > 1:
            raise AssertionError("engines differ in their bits")
        for step in found["local"]:
            of_step = {kind: found[kind][step] for kind in KINDS}
            yield from engine_rows(f"{suffix}: {step}", shape, of_step)
        whole = {kind: sum(found[kind].values(), Took(0.0, 0.0)) for kind in KINDS}
        keys = (f"work.{suffix}.processes", f"work.{suffix}.dask")
        yield from engine_rows(f"{suffix} to releases", shape, whole, keys=keys)


def _best(found: dict[str, Took], new: dict[str, Took]) -> None:
    for step, took in new.items():
        found[step] = took.best(found.get(step, took))


def _run(kind: str, path: Path) -> tuple[str, dict[str, Took]]:
    command = [sys.executable, "-m", "scripts.benches.party_work", kind, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    digest, found = json.loads(done.stdout)
    return digest, {step: Took(*took) for step, took in found.items()}


def one(kind: str, path: Path) -> None:
    """Do all steps with one engine and print what each took."""
    leave_pandas_out()
    took = dict[str, tuple[float, float]]()
    with pin_threads(), ExitStack() as stack:
        engine, pids = _engine(kind, stack)
        work = Work(path, engine)
        for name, step in work.steps():
            began, before = time.perf_counter(), busy_s(pids())
            step()
            wall_s, after = time.perf_counter() - began, busy_s(pids())
            took[name] = wall_s, max(after[pid] - before.get(pid, 0.0) for pid in after)
    print(json.dumps([work.digest(), took]))


class Work:
    """What one party has computed so far."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path, self._engine = path, engine
        self._data: Any = None
        self._order: Any = None
        self._block: Any = None
        self._found = sha256()

    def steps(self) -> list[Step]:
        """In the order of a run."""
        return [
            ("preparation", self._prepare),
            ("ids", self._ids),
            ("rows in order", self._align),
            ("X'X and noise", lambda: self._release(self._gram)),
            ("X'z", self._moments),
            ("scores and noise", lambda: self._release(self._scores)),
        ]

    def digest(self) -> str:
        """Of all results: the same for all engines."""
        return self._found.hexdigest()[:16]

    def _prepare(self) -> None:
        source, settings = TableFile(self._path), DataSettings()
        self._data = prepare(source, settings, role="passive", engine=self._engine)
        self._found.update(self._data.fingerprint)

    def _ids(self) -> None:
        ids = normalise(self._data.ids, IdRules()).ids
        self._found.update(elements.hash_ids(ids, KEY, engine=self._engine).tobytes())
        self._order = order.row_order(ids, KEY, engine=self._engine)

    def _align(self) -> None:
        self._block = ColumnBlock.align(self._data.X, self._order, engine=self._engine)
        self._data = None

    def _gram(self) -> Any:
        return statistics.gram(self._block, self._block.rows, exponent=EXPONENT).expose()

    def _moments(self) -> None:
        z = statistics.clipped(np.random.default_rng(0).normal(size=self._block.rows), CLIP)
        found = statistics.moments(self._block, z, clip=CLIP, exponent=EXPONENT).expose()
        self._found.update(np.asarray(found, dtype=np.float64).tobytes())

    def _scores(self) -> Any:
        columns = self._block.columns
        w = statistics.weight_grid(np.random.default_rng(0).normal(size=columns) / columns)
        return statistics.scores(self._block, slice(0, self._block.rows), w)

    def _release(self, exact: Callable[[], Any]) -> None:
        values = np.asarray(exact(), dtype=np.float64).ravel()
        total = np.zeros(values.shape, dtype=np.int64)
        ladder(5000.0).add_to(total, KEY, self._engine)
        self._found.update(values.tobytes() + total.tobytes())


def _engine(kind: str, stack: ExitStack) -> tuple[Engine, Callable[[], tuple[int, ...]]]:
    """An engine whose workers are started, and their pids."""
    if kind == "local":
        return LocalEngine(), lambda: ()
    if kind == "processes":
        processes = ProcessEngine(WORKERS)
        stack.callback(processes.close)
        list(processes.each(len, [(b"",)] * (2 * WORKERS)))  # they start with the first job
        return processes, lambda: processes.pids
    from hdpvfl_mq.engine.cluster import ClusterEngine  # noqa: PLC0415 - needs the extra
    from hdpvfl_mq.engine.rows_folder import RowsFolder  # noqa: PLC0415 - used here alone

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    address, pids = stack.enter_context(dask_cluster(folder))
    rows = RowsFolder(folder / "rows")
    cluster = ClusterEngine(address, profile=numeric_profile, folder=rows)
    stack.callback(cluster.close)
    cluster.wait_for_workers(WORKERS)
    return cluster, lambda: pids


def _file(cache: Path, suffix: str, shape: tuple[int, int]) -> Path:
    path = cache / f"work-{shape[0]}-{shape[1]}.{suffix}"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    partial, writer = path.with_suffix(".part"), None
    for start in range(0, shape[0], GROUP_ROWS):
        dice = np.random.default_rng(start)
        count = min(GROUP_ROWS, shape[0] - start)
        cells = {f"x{i}": dice.normal(size=count).round(6) for i in range(shape[1])}
        table = pa.table({"id": [f"k{start + i}" for i in range(count)], **cells})
        if writer is None:
            kind = csv.CSVWriter if suffix == "csv" else parquet.ParquetWriter
            writer = kind(partial, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    partial.rename(path)
    return path


def main() -> int:
    """Do the steps of one engine."""
    one(sys.argv[1], Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
