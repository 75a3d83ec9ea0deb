"""Search for a sequence of messages that tells neighbouring rows apart by more than is booked.

Plays episodes of tests/adversary through the production roles until so many moves are made, and
prints how far it has come. Exit code 1 at the first release the ledger does not cover and at the
first word that differs between neighbours: keep its seed in tests/privacy/test_adversary.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.adversary.search import episodes
from tests.adversary.tap import Leak

MOVES_A_SEED = 10_000
Found = tuple[int, int, dict[str, float], str]


def searched(seed: int, moves: int) -> Found:
    """One seed: (seed, moves made, the largest share of what was booked by kind, what leaked)."""
    made, tops = 0, dict[str, float]()
    try:
        for more, peak, chosen in episodes(seed):
            kind = f"{chosen.manifest.method.kind} {'active' if chosen.is_active else 'passive'}"
            made, tops[kind] = made + more, max(tops.get(kind, 0.0), peak)
            if made >= moves:
                break
    except Leak as leak:
        return seed, made, tops, f"{leak}"
    except Exception as stopped:  # noqa: BLE001 - whatever stops a party is a finding
        return seed, made, tops, f"a message stopped the party: {stopped!r}"
    return seed, made, tops, ""


def main() -> int:
    """Exit code 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + -(-asked.moves // MOVES_A_SEED))
    made, tops, begin = 0, dict[str, float](), time.monotonic()
    with ProcessPoolExecutor(asked.jobs) as pool:
        size = min(MOVES_A_SEED, asked.moves)
        for done in as_completed([pool.submit(searched, seed, size) for seed in seeds]):
            seed, more, found, leak = done.result()
            made += more
            tops = {k: max(tops.get(k, 0.0), found.get(k, 0.0)) for k in {*tops, *found}}
            if leak:
                print(f"seed {seed}: {leak}")
                pool.shutdown(cancel_futures=True)
                return 1
            best = ", ".join(f"{kind} {top:.3f}" for kind, top in sorted(tops.items()))
            rate = made / (time.monotonic() - begin)
            print(
                f"{made:9,d} moves, {rate:,.0f}/s; told apart of what was booked: {best}",
                flush=True,
            )
    print(f"{made:,d} moves: nothing left that the ledger does not cover")
    return 0


if __name__ == "__main__":
    sys.exit(main())
