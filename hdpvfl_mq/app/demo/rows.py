"""The rows of the local demo: test rows are split off here and never reach a training file.

It owns the split and the CSV files; it knows neither keys nor settings.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.splits import held_out
from hdpvfl_mq.data.tables import Column, Table

Split = dict[str, tuple[Table, NDArray[np.bool_]]]  # party -> its table, its rows for testing


def split_rows(tables: Mapping[str, Table], *, seed: int) -> Split:
    """Each party's table, and which of its rows are for testing; equal ids are hashed once."""
    found: Split = {}
    hashed: list[tuple[Column, NDArray[np.bool_]]] = []
    for party, table in tables.items():
        ids = table["id"]
        test = next((mask for known, mask in hashed if np.array_equal(known, ids)), None)
        if test is None:
            test = held_out(ids, seed=seed)
            hashed.append((ids, test))
        found[party] = table, test
    return found


def common_rows(split: Split) -> int:
    """The training rows that all parties of a new demo will find in common."""
    kept = {frozenset(table["id"][~test].tolist()) for table, test in split.values()}
    return len(frozenset.intersection(*kept))


def write_split(split: Split, path: Callable[[str, str], Path]) -> None:
    """Write every party's train and test rows to the file that `path` names."""
    for party, (table, test) in split.items():
        _write_csv(path(party, "train"), table.take(~test))
        _write_csv(path(party, "test"), table.take(test))


def _write_csv(path: Path, table: Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.names)
        writer.writerows(zip(*(table[name].tolist() for name in table.names), strict=True))
