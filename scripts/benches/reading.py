"""Compare reading and preparing a party's file with pyarrow's own read of the same file.

It owns the file and the two programs. Each runs in a new process, because memory that a process has
already touched is cheaper the second time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from scripts.benches.row import Row, times

ROWS, COLUMNS = 100_000, 300
LIMIT_MIB = 2 * 4 * ROWS * COLUMNS / 2**20 + 200  # twice the table in float32, and 200 MiB
_FRAME = """
import json, resource, sys, time
{imports}
wall, cpu = time.perf_counter(), time.process_time()
{work}
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, usage.ru_maxrss / 1024]))
"""
_OURS = _FRAME.format(
    imports="from hdpvfl_mq.data.preprocess import prepare\n"
    "from hdpvfl_mq.data.readers import TableFile\nfrom schemas.data import DataSettings",
    work="prepare(TableFile(sys.argv[1]), DataSettings(), role='passive')",
)
_THEIRS = {
    "csv": _FRAME.format(imports="from pyarrow import csv", work="csv.read_csv(sys.argv[1])"),
    "parquet": _FRAME.format(
        imports="from pyarrow import parquet", work="parquet.read_table(sys.argv[1])"
    ),
}


def reading(cache: Path) -> list[Row]:
    """One row for CSV and one for Parquet: time until ready for training against time to read."""
    rows = []
    for suffix, theirs in _THEIRS.items():
        path = _file(cache, suffix)
        other, own = _run(theirs, path), _run(_OURS, path)
        rows.append(
            Row(
                f"{suffix} {ROWS:,} x {COLUMNS}, ready for training",
                f"{own[0]:.2f} s, {own[2]:.0f} MiB (limit {LIMIT_MIB:.0f})",
                f"pyarrow reads {other[0]:.2f} s, {other[2]:.0f} MiB",
                times(own[0], other[0]),
                times(own[1], other[1]),
            )
        )
    return rows


def _run(program: str, path: Path) -> tuple[float, float, float]:
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall, cpu, peak = json.loads(done.stdout)
    return wall, cpu, peak


def _file(cache: Path, suffix: str) -> Path:
    path = cache / f"reading-{ROWS}-{COLUMNS}.{suffix}"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    dice = np.random.default_rng(0)
    features = {f"x{i}": dice.normal(size=ROWS).round(6) for i in range(COLUMNS)}
    table = pa.table({"id": [f"k{i}" for i in range(ROWS)], **features})
    if suffix == "csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path, row_group_size=10_000)
    return path
