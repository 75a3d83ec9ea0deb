"""Data sets with their columns split between one active party and any number of partners.

It owns the choice of training and test rows, and who holds which column; it knows no method.
Categories and deviations come from the training rows; categories become 0/1 columns, numbers are
standardised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.app.demo.further import data_folder
from hdpvfl_mq.app.estimators.columns import Standardised
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.glm.block import scale_rows
from scripts.reproduction.data import held_rows

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Dealt:
    """One split: all columns side by side, and each party's, the active party's first."""

    X: Matrix
    y: Matrix
    held: NDArray[np.bool_]
    columns: tuple[tuple[int, ...], ...]

    @property
    def parts(self) -> list[Standardised]:
        """The columns as inputs of the parties, already standardised."""
        return [Standardised(c, np.zeros(len(c)), np.ones(len(c))) for c in self.columns]

    def features(self, rows: NDArray[np.bool_], parties: int) -> Matrix:
        """The first parties' columns as model inputs; partners scale their rows."""
        own, *others = (self.X[rows][:, list(c)] for c in self.columns[:parties])
        return np.hstack([own, *(scale_rows(X) for X in others)])


@lru_cache(maxsize=8)
def _whole(name: str) -> tuple[Table, Table]:
    """Both tables of a data set, sorted by id."""
    folder = data_folder()
    if folder is None:
        raise DataError("set HDPVFL_DATA to the folder of the data sets")
    found = []
    for side in ("active", "passive"):
        table = load_table(_file(folder, f"{name}_{side}"))
        found.append(table.take(np.argsort(table["id"].astype(np.int64), kind="stable")))
    return found[0], found[1]


def _file(folder: Path, stem: str) -> Path:
    for ending in (".csv", ".csv.gz"):
        if (folder / f"{stem}{ending}").exists():
            return folder / f"{stem}{ending}"
    raise DataError(f"{folder} has no {stem}.csv or {stem}.csv.gz")


def dealt(name: str, seed: int, partners: int) -> Dealt:
    """Deal the passive columns in turn; all values of a category go to one partner.

    If there are fewer columns than partners, the values of categories are dealt one by one; if
    those are too few as well, there are fewer partners.
    """
    active, passive = _whole(name)
    held = held_rows(active.rows, seed)
    own = [_encoded(active[c], held) for c in active.names if c not in ("id", "y")]
    given = [_encoded(passive[c], held) for c in passive.names if c != "id"]
    if partners > len(given):
        given = [[column] for group in given for column in group]
    hands = [given[p::partners] for p in range(min(partners, len(given)))]
    blocks = [np.column_stack([*chain.from_iterable(hand)]) for hand in (own, *hands)]
    ends = np.cumsum([block.shape[1] for block in blocks]).tolist()
    places = zip([0, *ends[:-1]], ends, strict=True)
    return Dealt(
        X=np.hstack(blocks),
        y=active["y"].astype(np.float64),
        held=held,
        columns=tuple(tuple(range(start, end)) for start, end in places),
    )


def _encoded(values: Any, held: NDArray[np.bool_]) -> list[Matrix]:
    """One column of numbers, or one column for each category; a file has only text."""
    try:
        numbers = values.astype(np.float64)
    except ValueError:
        text = np.array([str(value) for value in values])
        return [(text == value).astype(np.float64) for value in sorted(set(text[~held]))]
    spread = float(numbers[~held].std()) or 1.0
    return [(numbers - numbers[~held].mean()) / spread]
