"""The report of a bench: JSON, a page and a picture; growth since the last recorded one.

It owns the files under docs/results; it measures nothing. Targets are in targets.py.
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

from scripts.benches import picture, targets
from scripts.benches.row import Row

RESULTS = Path(__file__).parents[2] / "docs" / "results"
GROWN = 1.5  # a ratio to the floor that has grown by half is a regression
BUSY = 6.0  # load at the end of a run on two cores: its own processes alone stay below
CHECKED = ("round.", "sound.")  # keys whose processor time is a ratio of neighbours


def record(
    rows: Sequence[Row],
    folder: Path = RESULTS,
    *,
    commit: str = "unknown",
    unfinished: Sequence[str] = (),
) -> None:
    """Write bench.json, bench.md and bench.png; `unfinished` names parts that have not run."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {_processor()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
        "unfinished": list(unfinished),
        "rows": [asdict(row) for row in rows],
    }
    (folder / "bench.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "bench.md").write_text(page(found))
    picture.draw(rows, folder / "bench.png")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def page(found: dict[str, Any]) -> str:
    """The page of a recorded run."""
    values = {row["key"]: row["value"] for row in found["rows"] if row["key"]}
    lines = [
        "# Speed, measured side by side",
        "",
        f"`make bench FULL=1 RECORD=1` wrote this page on {found['date']}, from commit "
        f"{found['commit']}: {found['machine']}, load {found['load']} at the end. "
        "Ratios are ours to theirs, of measurements in turn; below 1 is faster. Where several "
        "were made, the median counts.",
        "What was tried to reach the targets, and what it gained, is in "
        "[performance.md](../performance.md).",
        "",
    ]
    if found["load"] > BUSY:
        lines += ["**The machine was busy** with other work: times and verdicts are too bad.", ""]
    if found["unfinished"]:
        lines += [f"**Not finished**: {', '.join(found['unfinished'])} had not run yet.", ""]
    lines += [*targets.table(values), ""]
    lines += ["![Growth and ratios](bench.png)", ""]
    lines += ["| what | ours | against | wall | processor |", "|---|---|---|---|---|"]
    for row in found["rows"]:
        cells = (row[name] for name in ("what", "ours", "against", "wall", "cpu"))
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join([*lines, ""])


def _cell(text: object) -> str:
    return " ".join(str(text).replace("|", "/").split())


def grown(rows: Sequence[Row], folder: Path = RESULTS) -> list[str]:
    """What has grown by half since the recorded run, in processor time: wall time depends on load.

    Raises FileNotFoundError if no run was recorded.
    """
    stored = json.loads((folder / "bench.json").read_text())["rows"]
    before = {row["key"]: row["cpu_value"] for row in stored if row["key"].startswith(CHECKED)}
    news = [
        f"{row.what}: {row.cpu_value:.2f} against {before[row.key]:.2f} times the floor"
        for row in rows
        if row.cpu_value is not None
        and before.get(row.key) is not None
        and row.cpu_value > GROWN * before[row.key]
    ]
    compared = [row for row in rows if row.cpu_value and before.get(row.key) is not None]
    for row in compared:
        print(f"{row.what}: {row.cpu_value:.2f} times the floor, recorded {before[row.key]:.2f}")
    return news if compared else ["nothing to compare: no row is in both runs"]
