"""The report of a bench: JSON, a page and a plot; targets met or not met; growth since the last.

It owns the targets and the files under docs/results; it measures nothing.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scripts.benches.row import Row

RESULTS = Path(__file__).parents[2] / "docs" / "results"
GROWN = 1.5  # a ratio to the floor that has grown by half is a regression
# key of a row -> (largest value, what it means)
TARGETS: dict[str, tuple[float, str]] = {
    "round.1": (1.8, "a round, 1 partner, times the floor"),
    "round.8": (1.6, "a round, 8 partners, times the floor"),
    "round.64": (1.4, "a round, 64 partners, times the floor"),
    "sound.1": (1.10, "sound, 1 partner, times none"),
    "sound.8": (1.10, "sound, 8 partners, times none"),
    "sound.64": (1.10, "sound, 64 partners, times none"),
    "release": (0.5, "one durable release of 3,200 values, ms"),
    "up.2": (2.5, "hdpvfl up on the default data, s"),
    "up.16": (7.0, "hdpvfl up with 16 partners, s"),
    "memory.1": (120.0, "memory of the active party beyond its data, MiB"),
    "resolution": (1 / 30, "entity resolution of 100,000 ids, times openmined-psi"),
    "reading.csv": (3.0, "CSV of 100,000 x 300 ready for training, times pyarrow's own read"),
    "reading.parquet": (3.0, "Parquet of 100,000 x 300 ready for training, times pyarrow's own"),
    "reading.csv.memory": (429.0, "peak memory of that for CSV, MiB: 2 x float32 + 200"),
    "reading.parquet.memory": (429.0, "peak memory of that for Parquet, MiB: 2 x float32 + 200"),
    "engines.processes": (1 / 1.6, "all products of 1,000,000 x 300, processes to local, 2 cores"),
    "engines.dask": (2.0, "all products of 1,000,000 x 300, dask to processes"),
}


def record(rows: Sequence[Row], folder: Path = RESULTS) -> None:
    """Write bench.json, bench.md and bench.png."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end",
        "rows": [asdict(row) for row in rows],
    }
    (folder / "bench.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "bench.md").write_text(page(found))
    _plot(rows, folder / "bench.png")


def page(found: dict[str, Any]) -> str:
    """The page of a recorded run."""
    by_key = {row["key"]: row for row in found["rows"] if row["key"]}
    lines = [
        "# Speed, measured side by side",
        "",
        f"`make bench RECORD=1` wrote this page on {found['date']}: {found['machine']}. Ratios are "
        "ours to theirs, medians of measurements in turn.",
        "What was tried to reach the targets, and what it gained, is in "
        "[performance.md](../performance.md).",
        "",
        "| target | at most | found | |",
        "|---|---|---|---|",
    ]
    for key, (limit, what) in TARGETS.items():
        value = by_key.get(key, {}).get("value")
        shown = "not measured" if value is None else f"{value:.3g}"
        verdict = "" if value is None else "met" if value <= limit else "**not met**"
        lines.append(f"| {what} | {limit:.3g} | {shown} | {verdict} |")
    lines += ["", "| what | ours | against | wall | processor |", "|---|---|---|---|---|"]
    for row in found["rows"]:
        cells = (row[name] for name in ("what", "ours", "against", "wall", "cpu"))
        lines.append(f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |")
    return "\n".join([*lines, "", "![Rounds against their floor](bench.png)", ""])


def grown(rows: Sequence[Row], folder: Path = RESULTS) -> list[str]:
    """What has grown by half since the recorded run, in processor time: wall time depends on load.

    Raises FileNotFoundError if no run was recorded.
    """
    stored = json.loads((folder / "bench.json").read_text())["rows"]
    before = {row["key"]: row["cpu_value"] for row in stored if row["key"]}
    news = []
    for row in rows:
        last = before.get(row.key)
        if row.cpu_value is None or last is None:
            continue
        print(f"{row.what}: {row.cpu_value:.2f} times the floor, recorded {last:.2f}")
        if row.cpu_value > GROWN * last:
            news.append(f"{row.what}: {row.cpu_value:.2f} against {last:.2f} times the floor")
    return news


def _plot(rows: Sequence[Row], path: Path) -> None:
    found = {int(r.key.split(".")[1]): r for r in rows if r.key.startswith("round.")}
    if not found:
        return
    figure = Figure(figsize=(6, 3.5))
    axes = figure.subplots()
    partners = sorted(found)
    axes.plot(partners, [found[p].value or 0.0 for p in partners], "o-", label="wall time")
    axes.plot(
        partners, [found[p].cpu_value or 0.0 for p in partners], "s--", label="processor time"
    )
    axes.axhline(1.0, color="grey", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("partners")
    axes.set_ylabel("times the floor")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
