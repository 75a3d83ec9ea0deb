"""Regenerate every figure and table of the evaluation: `python -m scripts.reproduce --quick`.

It owns the order of the parts and the processes they run in; results go into a folder as CSV, PNG
and one Markdown page. Parts can be run one at a time: the page is made from all tables that exist.
Each task's rows are kept, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

from scripts import sources
from scripts.reproduction import attacks, figures, page, questions, recovery, tables, timing
from scripts.reproduction.grid import FULL, QUICK, TINY, Grid

GRIDS = {"full": FULL, "quick": QUICK, "tiny": TINY}
LIBRARIES = ("numpy", "scikit-learn", "scipy", "pyzmq", "matplotlib", "phe", "gmpy2", "tenseal")
Rows = list[dict[str, Any]]
Task = Callable[[], Rows]


def resumed(tasks: Sequence[Task], folder: Path, jobs: int) -> Rows:
    """Rows of all tasks in their order; a task whose file is in the folder is not run again."""
    files = [folder / f"{number}.csv" for number in range(len(tasks))]
    left = [number for number, file in enumerate(files) if not file.exists()]
    if jobs == 1:
        for number in left:
            tables.write(files[number], tasks[number]())
            print(f"  task {number} of {len(tasks)}", flush=True)
        return [row for file in files for row in tables.read(file)]
    began = time.monotonic()
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(tasks[number]): number for number in left}
        for done, future in enumerate(as_completed(running), start=1):
            tables.write(files[running[future]], future.result())
            rest = (len(left) - done) * (time.monotonic() - began) / done / 60
            print(f"  {done} of {len(left)}, {rest:.0f} minutes left", flush=True)
    return [row for file in files for row in tables.read(file)]


def part_tasks(part: str, grid: Grid, out: Path) -> list[Task]:
    """The tasks of a part, long tasks first."""
    by_data: dict[str, tuple[Any, Iterable[int]]] = {
        "q1": (questions.q1, (*grid.splits, *grid.fresh_splits)),
        "steps": (questions.step_sizes, grid.step_splits),
        "variants": (questions.variants, grid.variant_splits),
    }
    by_split: dict[str, tuple[Any, Iterable[int]]] = {
        "q2": (questions.q2, grid.splits),
        "q2steps": (questions.epochs_and_steps, grid.splits),
        "tuned": (questions.tuned, grid.tuned_splits),
    }
    if part in by_data:
        ask, seeds = by_data[part]
        return [partial(ask, grid, d, s) for d in grid.datasets[::-1] for s in seeds]
    if part in by_split:
        ask, seeds = by_split[part]
        return [partial(ask, grid, s) for s in seeds]
    if part == "recovery":
        return [task.rows for task in recovery.tasks(grid)]
    if part == "attacks":
        runs = [partial(attacks.transcripts, grid, d, 0) for d in grid.attack_datasets[::-1]]
        return [*runs, *(partial(attacks.game, grid, e) for e in grid.attack_epsilons)]
    return [partial(timing.encrypted, grid)] if part == "he" else timing.q3(grid, out)


PARTS = ("recovery", "q1", "attacks", "q2", "q2steps", "steps", "tuned", "variants", "he", "q3")
# Timed parts run alone: two timed federations would disturb each other.
TIMED = ("q3", "he")


def run(size: str, parts: Sequence[str], out: Path, *, jobs: int) -> None:
    """Run parts, write their tables, and make figures and page from all existing tables.

    A run that was stopped goes on where it was, as long as the commit is the same.
    """
    out.mkdir(parents=True, exist_ok=True)
    commit = sources.commit()  # the loaded code, even if files change during the run
    some = "" if tuple(parts) == PARTS else f" --parts {','.join(parts)}"
    command, grid = f"python -m scripts.reproduce --{size}{some}", GRIDS[size]
    for part in parts:
        began = time.monotonic()
        print(f"{part} ...", flush=True)
        folder = out / "tasks" / f"{commit}-{size}" / part
        rows = resumed(part_tasks(part, grid, out), folder, 1 if part in TIMED else jobs)
        tables.write(out / f"{part}.csv", rows)
        seconds = time.monotonic() - began
        _note(
            out,
            part,
            {"command": command, "seconds": round(seconds, 1), "jobs": jobs, "commit": commit},
        )
        print(f"{part}: {len(rows)} rows in {seconds:.0f} s", flush=True)
    make_page(out)


def make_page(out: Path) -> None:
    """Make figures and page from the tables in the folder."""
    found = {part: tables.read(out / f"{part}.csv") for part in PARTS}
    drawn = figures.draw_all(found, out)
    notes = json.loads((out / "notes.json").read_text())
    (out / "README.md").write_text(page.compose(found, drawn, notes))
    print(f"page: {out / 'README.md'}", flush=True)


def _note(out: Path, part: str, facts: dict[str, Any]) -> None:
    """Record when, how long and with which versions a part ran."""
    path = out / "notes.json"
    notes = json.loads(path.read_text()) if path.exists() else {"parts": {}}
    load = f"{os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    notes["parts"][part] = {**facts, "load_5_min": load, "date": time.strftime("%Y-%m-%d")}
    notes["machine"] = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    notes["versions"] = {"python": platform.python_version(), **_versions()}
    path.write_text(json.dumps(notes, indent=1) + "\n")


def _versions() -> dict[str, str]:
    found = {}
    for name in ("hdpvfl-mq", *LIBRARIES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    for name in GRIDS:
        size.add_argument(f"--{name}", dest="size", action="store_const", const=name)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--page", action="store_true", help="only figures and page, from the CSVs")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.page:
        make_page(chosen.out)
        return 0
    wanted = [part for part in PARTS if part in chosen.parts.split(",")]
    run(chosen.size or "full", wanted, chosen.out, jobs=chosen.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
