"""Rows of a mapped matrix in another order, read and written in long runs.

It owns the two passes and knows nothing of what the rows are for. Rows taken one by one in a random
order cost a seek each once the file is larger than the memory that is free to cache it: hours for
ten million of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate, chunks, group, take_places

Matrix = NDArray[np.float64] | NDArray[np.float32]

# Of a matrix at a time, thrice: 16 MiB of float32.
RUN_NUMBERS = 2**22


def ordered_rows(
    X: Matrix, order: NDArray[np.int64], out: Matrix, allocate: Allocate
) -> Iterator[tuple[slice, Matrix]]:
    """X[order], run by run with its place in the order.

    `out` has as many rows as the order, and columns for X at least. First every row of X, read as
    it lies, is put anywhere into the run of `out` it belongs to; then every run is sorted in
    memory. The caller may overwrite a run of `out` that it has been given.
    """
    columns = X.shape[1]
    length = max(1, RUN_NUMBERS // columns)
    runs = list(chunks(len(order), length))
    by_source = group(
        lambda part: order[part] // length,
        len(order),
        groups=-(-len(X) // length),
        allocate=allocate,
    )
    free = np.array([run.start for run in runs], dtype=np.int64)
    for source, wanted in zip(chunks(len(X), length), by_source, strict=True):
        rows = np.array(X[source])[order[wanted] - source.start]
        out[take_places(free, np.bincount(wanted // length, minlength=len(runs))), :columns] = rows
    for run in runs:
        # The rows of a run came by source and, within it, in the order wanted.
        sorted_rows = np.empty((run.stop - run.start, columns), dtype=X.dtype)
        sorted_rows[np.argsort(order[run] // length, kind="stable")] = out[run, :columns]
        yield run, sorted_rows
