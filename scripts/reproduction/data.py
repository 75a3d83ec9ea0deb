"""Data sets of the paper, its vertical split, and random 80/20 splits of their rows.

It owns the choice of training and test rows, and takes constants from the training rows only;
hdpvfl_mq.data owns the meaning of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.app.demo.further import data_folder
from hdpvfl_mq.data.bundled import SplitDataset, load_dataset
from hdpvfl_mq.data.preprocess import PreparedData, prepare
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.glm.block import scale_rows
from schemas.data import DataSettings

ACTIVE, PASSIVE = "active", "passive"
PARTIES = (ACTIVE, PASSIVE)
TEST_SHARE = 0.2
CACHE = Path("state") / "data"

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """One random split of one data set, prepared with constants from its training rows."""

    dataset: str
    seed: int
    train: Mapping[str, PreparedData]
    test: Mapping[str, Matrix]
    y_test: NDArray[np.float64]

    @property
    def y_train(self) -> NDArray[np.float64]:
        """Labels of the training rows, 0 or 1, in the order of their ids."""
        y = self.train[ACTIVE].y
        assert y is not None
        return y

    def features(self, parties: tuple[str, ...], *, scaled: bool) -> tuple[Matrix, Matrix]:
        """Training and test columns of some parties side by side; each party scales its rows."""

        def side_by_side(parts: Mapping[str, Any]) -> Matrix:
            blocks = [np.asarray(parts[p], dtype=np.float64) for p in parties]
            return np.hstack([scale_rows(X) if scaled else X for X in blocks])

        return side_by_side({p: d.X for p, d in self.train.items()}), side_by_side(self.test)


@lru_cache(maxsize=4)
def whole(name: str) -> SplitDataset:
    """A data set with both tables sorted by id; both have the same ids."""
    found = load_dataset(name, folder=data_folder(), cache=CACHE)
    active, passive = _sorted(found.active), _sorted(found.passive)
    assert np.array_equal(active["id"].astype(np.int64), passive["id"].astype(np.int64))
    return SplitDataset(name, found.card, active, passive)


def _sorted(table: Table) -> Table:
    return table.take(np.argsort(table["id"].astype(np.int64), kind="stable"))


def held_rows(rows: int, seed: int) -> NDArray[np.bool_]:
    """Which of the rows sorted by id are held out: unstratified, from numpy's generator."""
    chosen = np.zeros(rows, dtype=bool)
    chosen[np.random.default_rng(seed).permutation(rows)[: round(TEST_SHARE * rows)]] = True
    return chosen


@lru_cache(maxsize=1)
def split(name: str, seed: int) -> Split:
    """One split of a data set."""
    return split_tables(whole(name), seed)


def split_tables(data: SplitDataset, seed: int) -> Split:
    """One split of two tables over the same ids in the same order."""
    held = held_rows(data.active.rows, seed)
    train, test, y_test = {}, {}, np.zeros(0)
    for party, table in ((ACTIVE, data.active), (PASSIVE, data.passive)):
        role: Any = party
        train[party] = prepare(table.take(~held), _settings(data, table), role=role)
        rest = prepare(table.take(held), train[party].settings, role=role, to_score=True)
        test[party] = np.asarray(rest.X, dtype=np.float64)
        y_test = y_test if rest.y is None else rest.y
    return Split(data.name, seed, train, test, y_test)


def _settings(data: SplitDataset, table: Table) -> DataSettings:
    """The product's settings; a category not in the training rows is all zeros in the test."""
    settings = data.settings(table, "binary")
    rules = tuple(type(r)(**{**dict(r), "unknown": "zero"}) for r in settings.rules)
    return DataSettings(**{**dict(settings), "rules": rules})


def fold(parent: Split, number: int, folds: int) -> Split:
    """A fold of the training rows, with the constants of all training rows."""
    held = np.random.default_rng(parent.seed).permutation(len(parent.y_train)) % folds == number
    return Split(
        parent.dataset,
        parent.seed,
        {p: _rows(d, ~held) for p, d in parent.train.items()},
        {p: np.asarray(d.X, dtype=np.float64)[held] for p, d in parent.train.items()},
        parent.y_train[held],
    )


def _rows(data: PreparedData, keep: NDArray[np.bool_]) -> PreparedData:
    return replace(
        data,
        ids=tuple(column[keep] for column in data.ids),
        X=np.asarray(data.X, dtype=np.float64)[keep],
        y=None if data.y is None else data.y[keep],
        fingerprint=sha256(data.fingerprint + np.packbits(keep).tobytes()).digest(),
    )


def synthetic(rows: int, *, columns: tuple[int, int], seed: int) -> SplitDataset:
    """Synthetic rows for timing; y depends on all columns."""
    dice = np.random.default_rng(seed)
    X = dice.normal(size=(rows, sum(columns)))
    y = (X @ dice.normal(size=X.shape[1]) + dice.normal(size=rows) > 0).astype(np.float64)
    ids = np.arange(rows)
    names = [f"x{number}" for number in range(X.shape[1])]
    parts = (range(columns[0]), range(columns[0], sum(columns)))
    active, passive = ({names[c]: X[:, c].round(4) for c in part} for part in parts)
    return SplitDataset(
        "synthetic",
        whole("breast").card,
        Table.of({"id": ids, "y": y, **active}),
        Table.of({"id": ids, **passive}),
    )
