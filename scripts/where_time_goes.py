"""Where one round, one start and one release go, by file: `python -m scripts.where_time_goes`.

It owns the three tables; sampling is in benches/sampled.py. A round is the difference between a
long and a short run, so that starting and ending cancel out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

from scripts.benches.federation import made_up, run_federation, trained_ids
from scripts.benches.releases import release_cost
from scripts.benches.rounds import ACTIVE_COLUMNS, PASSIVE_COLUMNS, ROWS, manifest_of_rounds
from scripts.benches.sampled import read

SHORT, LONG, FILES = 100, 1100, 18
PROCESSES = ("coordinator", "active", "passive-1")


def main() -> int:
    """Print the three tables."""
    short, long = _rounds(SHORT), _rounds(LONG)
    for name in PROCESSES:
        _show(f"{LONG - SHORT} rounds, {name}", long[name] - short[name])
    _show("hdpvfl up, all processes", _start())
    print("\none release")
    for row in release_cost():
        print(f"  {row.ours:>10}  {row.what.strip()}")
    return 0


def _rounds(count: int) -> dict[str, Counter[str]]:
    ids = trained_ids(ROWS)
    dataset = made_up(ids, ids, (ACTIVE_COLUMNS, PASSIVE_COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples"
        samples.mkdir()
        manifest = manifest_of_rounds("sound", 1, count)
        run_federation(Path(folder), manifest, dataset, samples=samples)
        return {name: read(samples / name) for name in PROCESSES}


def _start() -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "start"
        command = ["-m", "scripts.benches.sampled", str(out), "hdpvfl_mq.app.cli", "up", "--json"]
        subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        return read(out)


def _show(title: str, counts: Counter[str]) -> None:
    total = sum(counts.values())
    print(f"\n{title}: {total} samples")
    shown: Iterable[tuple[str, int]] = counts.most_common(FILES)
    for name, count in shown:
        print(f"  {100 * count / max(total, 1):5.1f} %  {name}")


if __name__ == "__main__":
    sys.exit(main())
