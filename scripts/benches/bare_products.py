"""What two cores of this machine gain over one: plain numpy, without an engine.

It owns the rows and the processes. Children are forked after the rows are made, so they share the
rows' memory and copy nothing, and each computes its half. No engine can gain more than these
ratios. Run as a program: `python -m scripts.benches.bare_products [ROWS]`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 1_000_000, 300
TURNS, BLOCK_ROWS = 4, 3_495  # 2**20 numbers, as in a block of rows

Product = Callable[[NDArray[np.float64], NDArray[np.float64]], object]
PRODUCTS: dict[str, Product] = {
    "sum of all numbers": lambda X, z: X.sum(),
    "X w": lambda X, z: X @ X[0],
    "X'z": lambda X, z: z @ X,
    "X'X": lambda X, z: X.T @ X,
}


def seconds(X: NDArray[np.float64], product: Product, processes: int) -> float:
    """The best time in which so many processes compute a product of all blocks of rows."""
    bounds = np.linspace(0, len(X), processes + 1).astype(int)
    started = []
    for number in range(processes):
        ours, theirs = get_context("fork").Pipe()
        mine = X[bounds[number] : bounds[number + 1]]
        child = get_context("fork").Process(target=_compute, args=(theirs, mine, product))
        child.start()
        started.append((child, ours))
    best = float("inf")
    for _ in range(TURNS):
        began = time.perf_counter()
        for _, connection in started:
            connection.send(True)
        for _, connection in started:
            connection.recv()
        best = min(best, time.perf_counter() - began)
    for child, connection in started:
        connection.send(False)
        child.join()
    return best


def _compute(connection: Connection, X: NDArray[np.float64], product: Product) -> None:
    z = np.ones(len(X))
    while connection.recv():
        for start in range(0, len(X), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            product(X[part], z[part])
        connection.send(True)


def main() -> int:
    """Print a line for each product."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    X = np.random.default_rng(1).random((rows, COLUMNS))
    for name, product in PRODUCTS.items():
        one, two = (seconds(X, product, processes) for processes in (1, 2))
        print(f"{name:>18}: one {one:.3f} s, two {two:.3f} s, ratio {one / two:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
