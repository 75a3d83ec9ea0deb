"""Measure this against its peers, side by side in one run: `python -m scripts.bench [--full]`.

Owns the order of the parts and the table. Everything is a ratio measured on one machine minutes
apart at most; seconds by themselves say as much about the machine as about the program.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported
sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from scripts.benches import reading, releases, resolution, rounds, training
from scripts.benches.row import Row

Part = Callable[[argparse.Namespace], list[Row]]


def _resolution(options: argparse.Namespace) -> list[Row]:
    rows = [resolution.against_peer(options.cache, 100_000)]
    rows += [resolution.speed(parties, 1_000_000) for parties in (2, 5)]
    return rows + ([resolution.speed(2, 10_000_000)] if options.full else [])


def _sockets(options: argparse.Namespace) -> list[Row]:
    return [*resolution.over_sockets(1_000_000)]


def _rounds(options: argparse.Namespace) -> list[Row]:
    sizes = ((1, 600), (8, 200), (64, 40))
    return [row for passives, count in sizes for row in rounds.rounds(passives, count)]


def _release(options: argparse.Namespace) -> list[Row]:
    return releases.release_cost()


def _training(options: argparse.Namespace) -> list[Row]:
    further = ("credit",) if os.environ.get("HDPVFL_DATA") else ()
    return [row for name in ("breast", *further) for row in training.training(name)]


def _reading(options: argparse.Namespace) -> list[Row]:
    return reading.reading(options.cache)


PARTS: dict[str, Part] = {
    "resolution": _resolution,
    "sockets": _sockets,
    "rounds": _rounds,
    "release": _release,
    "training": _training,
    "reading": _reading,
}


def main() -> int:
    """Run the parts and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also 10 million ids")
    parser.add_argument("--only", choices=PARTS, help="one part")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parser.add_argument("--cache", type=Path, default=Path(home) / "hdpvfl-bench")
    options = parser.parse_args()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "ours", "against", "wall", "CPU"):
        table.add_column(title, justify="right" if title in ("wall", "CPU") else "left")
    failed = False
    for name in [options.only] if options.only else PARTS:
        began = time.monotonic()
        try:
            rows = PARTS[name](options)
        except Exception as broken:  # noqa: BLE001 - the other parts are still worth their table
            rows, failed = [Row(name, f"failed: {broken}"[:300])], True
        for row in rows:
            table.add_row(row.what, row.ours, row.against, row.wall, row.cpu)
        print(f"{name}: measured in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    load = os.getloadavg()[0]
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    print(
        "\nratios of ours to theirs, below 1 is faster; "
        f"{os.cpu_count()} cores, load {load:.1f} at the end"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
