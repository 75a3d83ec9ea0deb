"""Draw the private memory of large runs over time, from the tables of large_run.py.

It owns the picture, the thinned table beside it and the table of peaks in the page; it measures
nothing. Run as a program:
`python -m scripts.benches.memory_curve docs/results/large_runs PAGE NAME=TABLE.csv ...`.
"""

from __future__ import annotations

import csv
import sys
from itertools import pairwise
from pathlib import Path

EVERY_S = 15.0
COLUMNS = ("run", "seconds", "process", "phase", "Anonymous", "Rss")
PARTIES = {"active": "tab:blue", "passive-1": "tab:orange"}
# What a process says it is doing -> the heading under which its time counts.
STAGES = {
    "": "reading",
    "joining": "reading",
    "accepted": "reading",
    "aligning": "entity resolution",
    "agreeing": "row order and terms",
    "aligned": "row order and terms",
    "training": "the round",
}
BEGIN, END = "<!-- peaks -->", "<!-- end of peaks -->"


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


def peaks(named: list[tuple[str, Path]]) -> str:
    """A table of the largest memory and the minutes of every stage, from the whole tables."""
    stages = list(dict.fromkeys(STAGES.values()))
    head = ["run", "process", "private MiB, most", "resident MiB, most", *stages, "last sample in"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for run, table in named:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for process in PARTIES:
            mine = [row for row in rows if row["process"] == process]
            minutes = dict.fromkeys(stages, 0.0)
            for row, after in pairwise(mine):
                if (stage := STAGES.get(row["phase"])) is not None:
                    minutes[stage] += (float(after["seconds"]) - float(row["seconds"])) / 60
            most = [max(float(row[name]) for row in mine) for name in ("Anonymous", "Rss")]
            cells = [run, process, *(f"{each:.0f}" for each in most)]
            cells += [f"{minutes[stage]:.0f} min" for stage in stages]
            lines.append(f"| {' | '.join([*cells, mine[-1]['phase']])} |")
    return "\n".join(lines)


def write_peaks(page: Path, table: str) -> None:
    """Replace the table of peaks in a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """One panel for each run, one line for each party."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load, seldom drawn

    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure = Figure(figsize=(8, 2.6 * len(runs)))
    panels = figure.subplots(len(runs), 1, squeeze=False)
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
    """Write the table, the peaks and the picture."""
    target, page, *given = sys.argv[1:]
    named = [(run, Path(table)) for run, _, table in (each.partition("=") for each in given)]
    rows = [row for run, table in named for row in thinned(run, table)]
    write_peaks(Path(page), peaks(named))
    with Path(f"{target}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, Path(f"{target}.png"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
