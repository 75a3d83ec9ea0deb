"""Measure this against its peers, side by side in one run: `python -m scripts.bench [--full]`.

It owns the command and the table. Every result is a ratio of two measurements on one machine,
minutes apart at most, or a cost for each unit; seconds alone say as much about the machine as about
the program. Parts are in benches/parts.py, each in a process of its own with a time limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported
sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from scripts import sources
from scripts.benches import report
from scripts.benches.isolated import rows_of
from scripts.benches.parts import PARTS, Scope
from scripts.benches.row import Row


def main() -> int:
    """Run the parts and print one table."""
    options = _options()
    scope = Scope(quick=options.check or not (options.full or options.record), cache=options.cache)
    names, measured, failed = _chosen(options), list[Row](), False
    commit = sources.commit()  # now: files may change while it runs
    for place, name in enumerate(names):
        rows, is_whole = _measured(name, scope)
        measured += rows
        failed = failed or not is_whole
        if options.record:
            left = names[place + 1 :]
            report.record(measured, options.results, commit=commit, unfinished=left)
    _show(measured)
    return 1 if _is_slower(measured, options) or failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also the large sizes")
    parser.add_argument("--only", choices=PARTS, nargs="+", help="some parts")
    parser.add_argument("--record", action="store_true", help="write bench.json, .md and .png")
    parser.add_argument("--check", action="store_true", help="fail if a ratio grew by half")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="folder of the record")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parser.add_argument("--cache", type=Path, default=Path(home) / "hdpvfl-bench")
    options = parser.parse_args()
    if options.record and options.only and options.results == report.RESULTS:
        parser.error("--only and --record: name a --results folder, the record is of all parts")
    if options.check and not (options.results / "bench.json").exists():
        parser.error(f"{options.results}/bench.json is missing: make bench FULL=1 RECORD=1")
    return options


def _chosen(options: argparse.Namespace) -> list[str]:
    if options.check:
        return ["floor"]
    return options.only or [name for name, part in PARTS.items() if not part.is_alone]


def _measured(name: str, scope: Scope) -> tuple[list[Row], bool]:
    """The rows of a part, and whether it ran to its end."""
    part, rows, began = PARTS[name], list[Row](), time.monotonic()
    limit_s = part.quick_s if scope.quick else part.full_s
    broken = ""
    for sent in rows_of(partial(part.rows, scope), limit_s):
        if isinstance(sent, str):
            broken = sent
            sent = Row(name, sent)  # noqa: PLW2901 - a part that stops is a row of the table
        rows.append(sent)
    print(f"{name}: {time.monotonic() - began:.0f} s {broken}", file=sys.stderr, flush=True)
    return rows, not broken


def _show(measured: list[Row]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "ours", "against", "wall", "CPU"):
        table.add_column(title, justify="right" if title in ("wall", "CPU") else "left")
    for row in measured:
        table.add_row(row.what, row.ours, row.against, row.wall, row.cpu)
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    print(
        "\nratios of ours to theirs, below 1 is faster; "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"
    )


def _is_slower(measured: list[Row], options: argparse.Namespace) -> bool:
    news = report.grown(measured, options.results) if options.check else []
    if news:
        print("slower than the recorded run:\n  " + "\n  ".join(news))
    return bool(news)


if __name__ == "__main__":
    sys.exit(main())
