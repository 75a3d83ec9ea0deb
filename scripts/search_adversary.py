"""Search for a sequence of messages that tells neighbouring rows apart by more than is booked.

Plays episodes of tests/adversary through the production roles until enough moves are made, and
prints how far it has come. Exit code 1 at the first release the ledger does not cover and at the
first word that differs between neighbours: keep its seed in tests/privacy/test_adversary.py.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from tests.adversary.search import episodes
from tests.adversary.tap import Leak

MOVES_A_SEED = 10_000


@dataclass
class Found:
    """Results of searches: moves, the largest share of the booked spend, and a leak, by kind."""

    moves: Counter[str] = field(default_factory=Counter)
    tops: dict[str, float] = field(default_factory=dict)
    leak: str = ""

    def add(self, other: Found) -> None:
        """Add the results of another search."""
        self.moves += other.moves
        for kind, top in other.tops.items():
            self.tops[kind] = max(self.tops.get(kind, 0.0), top)


def searched(seed: int, moves: int) -> Found:
    """Search with one seed."""
    found = Found()
    gc.set_threshold(200_000)  # episodes leave little garbage
    np.seterr(all="ignore")  # hostile numbers overflow, as they would in a party's process
    try:
        for made, peak, chosen in episodes(seed):
            found.add(Found(Counter({chosen.name: made}), {chosen.name: peak}))
            if found.moves.total() >= moves:
                break
    except Leak as leak:
        found.leak = f"seed {seed}: {leak}"
    except Exception as stopped:  # noqa: BLE001 - whatever stops a party is a finding
        found.leak = f"seed {seed}: a message stopped the party: {stopped!r}"
    return found


def main() -> int:
    """Run the program; exit code 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + -(-asked.moves // MOVES_A_SEED))
    found, begin = Found(), time.monotonic()
    with ProcessPoolExecutor(asked.jobs) as pool:
        size = min(MOVES_A_SEED, asked.moves)
        for done in as_completed([pool.submit(searched, seed, size) for seed in seeds]):
            found.add(done.result())
            if leak := done.result().leak:
                print(leak)
                pool.shutdown(cancel_futures=True)
                return 1
            made, seconds = found.moves.total(), time.monotonic() - begin
            print(f"{made:9,d} moves, {seconds:,.0f} s, {made / seconds:,.0f}/s", flush=True)
    print(f"{found.moves.total():,d} moves: nothing left that the ledger does not cover")
    print("what the moves were tried on: moves, largest share of the booked cost that was told")
    for kind, count in sorted(found.moves.items()):
        print(f"  {kind:40s} {count:9,d}  {found.tops[kind]:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
