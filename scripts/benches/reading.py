"""Compare reading and preparing a party's file with pyarrow's own read of the same file.

It owns the files and the programs. Each runs in a new process, because memory that a process has
already touched is cheaper the second time. Programs run in turn and the best of some turns counts;
of peaks of memory the worst.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from scripts.benches.row import Row, times

ROWS, COLUMNS = 100_000, 300
LIMIT_MIB = 2 * 4 * ROWS * COLUMNS / 2**20 + 200  # twice the table in float32, and 200 MiB
TURNS = 3
_FRAME = """
import json, resource, sys, threading, time
{imports}
def private():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024
def watch():
    while True:
        peak[0] = max(peak[0], private())
        time.sleep(0.002)
peak = [private()]
before = peak[0]
threading.Thread(target=watch, daemon=True).start()
wall, cpu = time.perf_counter(), time.process_time()
{work}
took = time.perf_counter() - wall, time.process_time() - cpu
resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([*took, resident, peak[0] - before]))
"""
_IMPORTS = """
import tempfile
from pathlib import Path
from hdpvfl_mq.data.preprocess import prepare, prepare_mapped
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.without_pandas import leave_pandas_out
from hdpvfl_mq.engine.disk_space import DiskSpace
from parties.process.mapped_arrays import MappedArrays
from schemas.data import DataSettings
leave_pandas_out()  # as a party's process does
source, settings = TableFile(sys.argv[1]), DataSettings()
mapped = MappedArrays(DiskSpace(Path(tempfile.gettempdir())))
"""
_OURS = _FRAME.format(imports=_IMPORTS, work="prepare(source, settings, role='passive')")
_ON_DISK = _FRAME.format(
    imports=_IMPORTS,
    work="prepare_mapped(source, settings, mapped, lambda ids: None, role='passive')",
)
_THEIRS = {
    "csv": _FRAME.format(imports="from pyarrow import csv", work="csv.read_csv(sys.argv[1])"),
    "parquet": _FRAME.format(
        imports="from pyarrow import parquet", work="parquet.read_table(sys.argv[1])"
    ),
}


@dataclass(frozen=True)
class Cost:
    """What a program needed: seconds, and MiB of memory."""

    wall_s: float
    cpu_s: float
    resident: float
    private: float  # beyond what it had before the work

    def best(self, other: Cost) -> Cost:
        """The smaller times and the larger memory of two."""
        return Cost(
            min(self.wall_s, other.wall_s),
            min(self.cpu_s, other.cpu_s),
            max(self.resident, other.resident),
            max(self.private, other.private),
        )


def reading(cache: Path) -> list[Row]:
    """For CSV and Parquet: time until ready for training against time to read, and memory."""
    rows = []
    for suffix, theirs in _THEIRS.items():
        path = _file(cache, suffix)
        other, own, disk = _in_turn((theirs, _OURS, _ON_DISK), path)
        what, ratio = f"{suffix} {ROWS:,} x {COLUMNS}", own.wall_s / other.wall_s
        rows += [
            Row(
                f"{what}, ready for training",
                f"{own.wall_s:.2f} s, {own.resident:.0f} MiB (limit {LIMIT_MIB:.0f})",
                f"pyarrow reads {other.wall_s:.2f} s, {other.resident:.0f} MiB",
                times(own.wall_s, other.wall_s),
                times(own.cpu_s, other.cpu_s),
                key=f"reading.{suffix}",
                value=ratio,
                cpu_value=own.cpu_s / other.cpu_s,
            ),
            Row(
                "  the same, on_disk",
                f"{disk.wall_s:.2f} s, {disk.private:.0f} MiB private beyond the start",
                f"in memory {own.private:.0f} MiB",
                times(disk.wall_s, other.wall_s),
                times(disk.cpu_s, other.cpu_s),
                key=f"reading.{suffix}.memory",
                value=own.resident,
            ),
        ]
    return rows


def _in_turn(programs: tuple[str, ...], path: Path) -> list[Cost]:
    found = [_run(program, path) for program in programs]
    for _ in range(TURNS - 1):
        found = [_run(p, path).best(before) for p, before in zip(programs, found, strict=True)]
    return found


def _run(program: str, path: Path) -> Cost:
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Cost(*json.loads(done.stdout))


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
