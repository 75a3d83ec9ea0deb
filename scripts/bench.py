"""Measure this against its peers, side by side in one run: `python -m scripts.bench [--full]`.

It owns the order of the parts and the table. Every result is a ratio of two measurements on one
machine, minutes apart at most; seconds alone say as much about the machine as about the program.
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

from scripts.benches import (
    against_floor,
    ciphers,
    engines,
    many,
    reading,
    releases,
    report,
    resolution,
    rounds,
    scores,
    semi_honest,
    starting,
    training,
)
from scripts.benches.row import Row

QUICK_PARTNERS = 8  # more take minutes
# Left out of a recorded run, which takes about a quarter of an hour on two quiet cores.
NOT_RECORDED = ("rounds", "sockets", "many")
Part = Callable[[argparse.Namespace], list[Row]]


def _resolution(options: argparse.Namespace) -> list[Row]:
    rows = [resolution.against_peer(100_000)]
    rows += [resolution.speed(parties, 1_000_000) for parties in (2, 5)]
    rows.append(semi_honest.proofs(1_000_000))
    return rows + ([resolution.speed(2, 10_000_000)] if options.full else [])


def _sockets(options: argparse.Namespace) -> list[Row]:
    return [*resolution.over_sockets(1_000_000)]


def _rounds(options: argparse.Namespace) -> list[Row]:
    sizes = ((1, 600), (8, 200), (64, 40))
    return [row for passives, count in sizes for row in rounds.rounds(passives, count)]


def _floor(options: argparse.Namespace) -> list[Row]:
    quick = not (options.record or options.full)
    sizes = [n for n in against_floor.SIZES if not quick or n <= QUICK_PARTNERS]
    return [row for n in sizes for row in against_floor.against_floor(n, quick=quick)]


def _starting(options: argparse.Namespace) -> list[Row]:
    quick = not (options.record or options.full)
    return [starting.starting(passives, quick=quick) for passives in starting.SIZES]


def _many(options: argparse.Namespace) -> list[Row]:
    hosted = many.HOSTED if options.full else many.HOSTED[:1]
    return [*many.many(many.PROCESSES, hosted=False), *many.many(hosted, hosted=True)]


def _ciphers(options: argparse.Namespace) -> list[Row]:
    return ciphers.ciphers()


def _release(options: argparse.Namespace) -> list[Row]:
    return releases.release_cost()


def _training(options: argparse.Namespace) -> list[Row]:
    further = ("credit",) if os.environ.get("HDPVFL_DATA") else ()
    return [row for name in ("breast", *further) for row in training.training(name)]


def _reading(options: argparse.Namespace) -> list[Row]:
    return reading.reading(options.cache)


def _engines(options: argparse.Namespace) -> list[Row]:
    return engines.engines()


def _scores(options: argparse.Namespace) -> list[Row]:
    return scores.scores()


PARTS: dict[str, Part] = {
    "floor": _floor,
    "starting": _starting,
    "many": _many,
    "resolution": _resolution,
    "sockets": _sockets,
    "rounds": _rounds,
    "release": _release,
    "training": _training,
    "scores": _scores,
    "reading": _reading,
    "engines": _engines,
    "ciphers": _ciphers,
}


def main() -> int:
    """Run the parts and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also 10 million ids and 512 partners")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--record", action="store_true", help="write docs/results/bench.*")
    parser.add_argument("--check", action="store_true", help="fail if a ratio grew by half")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parser.add_argument("--cache", type=Path, default=Path(home) / "hdpvfl-bench")
    options = parser.parse_args()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "ours", "against", "wall", "CPU"):
        table.add_column(title, justify="right" if title in ("wall", "CPU") else "left")
    failed, measured = False, list[Row]()
    for name in _chosen(options):
        began = time.monotonic()
        try:
            rows = PARTS[name](options)
        except Exception as broken:  # noqa: BLE001 - the other parts are still worth their table
            rows, failed = [Row(name, f"failed: {broken}"[:300])], True
        measured += rows
        for row in rows:
            table.add_row(row.what, row.ours, row.against, row.wall, row.cpu)
        print(f"{name}: measured in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    load = os.getloadavg()[0]
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    print(
        "\nratios of ours to theirs, below 1 is faster; "
        f"{os.cpu_count()} cores, load {load:.1f} at the end"
    )
    if options.record and not options.only:
        report.record(measured)
    if options.check and (news := report.grown(measured)):
        print("slower than the recorded run:\n  " + "\n  ".join(news))
        failed = True
    return 1 if failed else 0


def _chosen(options: argparse.Namespace) -> list[str]:
    if options.check:
        return ["floor"]
    if options.only:
        return [options.only]
    return [name for name in PARTS if not (options.record and name in NOT_RECORDED)]


if __name__ == "__main__":
    sys.exit(main())
