"""Rows of a mapped matrix in another order, read and written in long runs.

It owns the two passes and does not know what the rows are for. If the file is larger than the free
cache memory, reading rows one by one in random order costs a seek per row: hours for ten million
rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate, chunks, group, take_places
from hdpvfl_mq.engine.port import Matrix

# Numbers of a run: 16 MiB of float32. Three runs are in memory at a time.
RUN_NUMBERS = 2**22


def ordered_rows(
    X: Matrix, order: NDArray[np.int64], out: Matrix, allocate: Allocate
) -> Iterator[tuple[slice, Matrix]]:
    """Yield X[order] in runs, each with its slice of the order.

    `out` has as many rows as the order, and at least as many columns as X. The first pass reads X
    in file order and puts every row somewhere into its run of `out`; the second pass sorts each run
    in memory. The caller may overwrite a run of `out` after receiving it.
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
        # The rows of a run arrived by source chunk and, within a chunk, in the wanted order.
        sorted_rows = np.empty((run.stop - run.start, columns), dtype=X.dtype)
        sorted_rows[np.argsort(order[run] // length, kind="stable")] = out[run, :columns]
        yield run, sorted_rows
