"""One run of two parties over many rows on disk, with the private memory of every process.

It owns the rows it makes, the processes it starts and the table it writes; it tests nothing. Run as
a program: `python -m scripts.benches.large_run FOLDER ROWS`. A second call with another `--run` in
the same folder uses the rows and the alignment of the first.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import BrokerSettings, PartySettings, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR

COLUMNS = 4
GROUP_ROWS = 100_000
SAMPLE_S = 3.0
_STRIDE = 7_919  # a prime that divides no round number of rows: ids in another order each
FIELDS = ("Private_Clean", "Private_Dirty", "Anonymous", "Rss")


def write_rows(path: Path, rows: int, *, seed: int, label: bool) -> None:
    """A Parquet file of `rows` people, in an order of its own; written once."""
    if path.exists():
        return
    names = [*(["y"] if label else []), *(f"c{number}" for number in range(COLUMNS))]
    schema = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in names)])
    dice, aside = np.random.default_rng(seed), path.with_suffix(".part")
    with pq.ParquetWriter(aside, schema) as sink:
        for start in range(0, rows, GROUP_ROWS):
            places = np.arange(start, min(start + GROUP_ROWS, rows))
            ids = (places * _STRIDE + seed) % rows
            cells = dice.standard_normal((COLUMNS, len(ids)), dtype=np.float32)
            if label:
                noise = dice.standard_normal(len(ids), dtype=np.float32)
                cells = np.vstack([(cells[0] - cells[1] + noise > 0).astype(np.float32), cells])
            sink.write_table(pa.table([ids, *cells], schema=schema))
    aside.rename(path)


def prepare(folder: Path, rows: int, run: str) -> Demo:
    """Keys, policies, manifest and settings of a run over these rows."""
    demo = prepare_demo(UpOptions(out=folder, run=run, passives=1, delta=1e-8))
    write_demo(demo, state=folder / "state", port=free_port())
    for seed, party in enumerate(demo.parties):
        path, is_active = folder / f"{party}-{rows}.parquet", seed == 0
        write_rows(path, rows, seed=seed, label=is_active)
        data = DataSettings(file=str(path), label_column="y" if is_active else None, on_disk=True)
        _change(demo.settings(party), PartySettings, data=data, patience_s=86_400.0)
    _change(demo.settings("manifest"), RunManifest, deadline_s=86_400.0)
    _change(demo.settings(COORDINATOR), BrokerSettings)
    return demo


def _change(path: Path, schema: type, **changes: object) -> None:
    settings: Any = load_settings(schema, path)
    path.write_text(dump_settings(schema(**{**fields_of(settings), **changes})))


def memory_mib(pid: int) -> dict[str, float]:
    """Private and resident memory of a process, in MiB; empty when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) / 1024 for name in FIELDS if name in found}


def watch(demo: Demo, folder: Path) -> dict[str, int]:
    """Start all processes, write a line for each every few seconds, and return their exit codes."""
    children, began = _start(demo, folder), time.monotonic()
    with (folder / f"{demo.manifest.run}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["seconds", "process", "phase", *FIELDS])
        while any(child.poll() is None for child in children.values()):
            for name, child in children.items():
                if memory := memory_mib(child.pid):
                    now = f"{time.monotonic() - began:.0f}"
                    values = (f"{memory[field]:.1f}" for field in FIELDS)
                    table.writerow([now, name, _phase(demo, name), *values])
            file.flush()
            time.sleep(SAMPLE_S)
    return {name: child.wait() for name, child in children.items()}


def _start(demo: Demo, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    children = {}
    for name in (COORDINATOR, *demo.parties):
        module = "broker" if name == COORDINATOR else "parties"
        with (folder / f"{demo.manifest.run}-{name}.log").open("ab") as log:
            children[name] = subprocess.Popen(
                [sys.executable, "-m", module, str(demo.settings(name))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
    return children


def _phase(demo: Demo, name: str) -> str:
    """What the process says it is doing."""
    try:
        return str(json.loads((demo.folder / name / "status.json").read_text()).get("phase", ""))
    except (OSError, ValueError):
        return ""


def main() -> int:
    """Make the rows, run, and print the exit codes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--run", default="large-run")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    folder = chosen.folder.absolute()
    demo, began = prepare(folder, chosen.rows, chosen.run), time.monotonic()
    codes = watch(demo, folder)
    print(f"{chosen.rows} rows: {time.monotonic() - began:.0f} s, exit codes {codes}", flush=True)
    return max(codes.values())


if __name__ == "__main__":
    raise SystemExit(main())
