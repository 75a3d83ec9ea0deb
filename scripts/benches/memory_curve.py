"""Draw the private memory of large runs over time, from the tables of large_run.py.

It owns the picture and the thinned table beside it; it measures nothing. Run as a program:
`python -m scripts.benches.memory_curve docs/results/large_runs NAME=TABLE.csv ...`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

EVERY_S = 15.0
COLUMNS = ("run", "seconds", "process", "phase", "Anonymous", "Rss")
PARTIES = {"active": "tab:blue", "passive-1": "tab:orange"}


def thinned(run: str, table: Path) -> list[dict[str, str]]:
    """One line for each process every few seconds."""
    kept: list[dict[str, str]] = []
    last: dict[str, float] = {}
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            now, process = float(row["seconds"]), row["process"]
            if now - last.get(process, -EVERY_S) >= EVERY_S:
                last[process] = now
                kept.append({"run": run, **{k: row[k] for k in COLUMNS[1:]}})
    return kept


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """One panel for each run, one line for each party."""
    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure, panels = plt.subplots(len(runs), 1, figsize=(8, 2.6 * len(runs)), squeeze=False)
    for run, panel in zip(runs, panels[:, 0], strict=True):
        for process, colour in PARTIES.items():
            mine = [row for row in rows if (row["run"], row["process"]) == (run, process)]
            minutes = [float(row["seconds"]) / 60 for row in mine]
            panel.plot(minutes, [float(r["Anonymous"]) for r in mine], label=process, color=colour)
        panel.axhline(2048, color="grey", linestyle=":", linewidth=1)
        panel.set(title=run, ylabel="private MiB", ylim=(0, 2200))
        panel.legend(loc="upper left", fontsize="small")
    panels[-1, 0].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    """Write the table and the picture."""
    target, *named = sys.argv[1:]
    rows = [
        row
        for run, _, table in (each.partition("=") for each in named)
        for row in thinned(run, Path(table))
    ]
    with Path(f"{target}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, Path(f"{target}.png"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
