"""Whole runs from files to models over made-up Parquet files, of any number of rows and columns.

It owns the files, their settings and the figures of one run: the processes are those of production,
one for each party, and time counts from their start to their end.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.methods.recommend import recommend
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import AlignmentSpec, IdRules, PartySettings, RunManifest
from schemas.model import LossSpec
from schemas.privacy import Budget
from scripts.benches.federation import Watched, made_up, run_processes, trained_ids

GROUP_ROWS, SKETCH_ROWS = 50_000, 500
_STRIDE = 7_919  # a prime that divides no round number of rows: every file has its own order


@dataclass(frozen=True)
class Measured:
    """Seconds of one run and of its stages, and the peak memory of a party beyond its data."""

    wall_s: float
    cpu_s: float
    resolution_s: float
    training_s: float
    beyond_data_mib: float


def one_round(partners: int) -> RunManifest:
    """The default method, the private model: one round."""
    names = tuple(f"passive-{number}" for number in range(1, partners + 1))
    budget, loss = Budget(epsilon=1.0, delta=1e-8), LossSpec(name="logistic")
    base = recommend("bench", ("active", names), "sound", budget, loss)
    alignment = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=50, reuse=False)
    return RunManifest(**{**dict(base), "alignment": alignment})


def from_files(manifest: RunManifest, rows: int, columns: int) -> Measured:
    """One run over this many rows, with `columns` dealt to all parties."""
    parties = len(manifest.parties)
    with tempfile.TemporaryDirectory() as name:
        folder, ids = Path(name), trained_ids(SKETCH_ROWS)
        sketch = made_up(ids, ids, (1, parties))  # its small files are replaced below
        demo = Demo(folder / "runs" / manifest.run, manifest, sketch, 0)
        write_demo(demo, state=folder / "state", port=free_port())
        shares = [len(range(number, columns, parties)) for number in range(parties)]
        for seed, (party, share) in enumerate(zip(demo.parties, shares, strict=True)):
            path = folder / f"{party}.parquet"
            _write(path, (rows, share), seed=seed, label=seed == 0)
            _read_from(demo.settings(party), path)
        seen = run_processes(demo, hosts=parties - 1)
    return _figures(seen, rows * max(shares) * 8 / 2**20)


def _figures(seen: Watched, data_mib: float) -> Measured:
    parties = [mib for name, mib in seen.peak_mib.items() if name != "coordinator"]
    return Measured(
        seen.wall_s,
        sum(seen.cpu_at["closed"].values()),
        seen.at["training"] - seen.at["aligning"],
        seen.at["trained"] - seen.at["training"],
        max(parties) - data_mib,
    )


def _write(path: Path, shape: tuple[int, int], *, seed: int, label: bool) -> None:
    """A file of random people, all of whom the other files have too, in another order."""
    rows, columns = shape
    names = [*(["y"] if label else []), *(f"c{seed}_{number}" for number in range(columns))]
    schema = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in names)])
    dice = np.random.default_rng(seed)
    with pq.ParquetWriter(path, schema, compression="none") as sink:
        for start in range(0, rows, GROUP_ROWS):
            places = np.arange(start, min(start + GROUP_ROWS, rows))
            cells = dice.standard_normal((len(names), len(places)), dtype=np.float32)
            if label:
                cells[0] = cells[0] > 0
            ids = (places * _STRIDE + seed) % rows
            sink.write_table(pa.table([ids, *cells], schema=schema))


def _read_from(path: Path, rows: Path) -> None:
    settings = load_settings(PartySettings, path)
    data = type(settings.data)(**{**fields_of(settings.data), "file": str(rows), "rules": ()})
    path.write_text(dump_settings(PartySettings(**{**fields_of(settings), "data": data})))
