"""The oblivious key-value store and its peeling."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.psi.peel import peel
from hdpvfl_mq.psi.store import Cells, locate, look_up, solve, store_cells
from hdpvfl_mq.psi.stream import derive, random_pairs

SEED, KEY = bytes(32), bytes(range(32))


def _pairs(label: str, count: int) -> np.ndarray:
    return random_pairs(derive(KEY, label), count)


@pytest.mark.parametrize("count", [0, 1, 2, 63, 1000, 30_000])
def test_every_key_finds_its_value(count: int) -> None:
    keys, values = _pairs("keys", count), _pairs("values", count)
    cells = locate(keys, count, SEED)
    table = solve(cells, values, KEY)
    assert len(table) == store_cells(count)
    assert (look_up(table, cells) == values).all()


def test_other_keys_find_randomness() -> None:
    cells = locate(_pairs("keys", 500), 500, SEED)
    table = solve(cells, np.zeros((500, 2), dtype=np.uint64), KEY)
    strangers = look_up(table, locate(_pairs("strangers", 2000), 500, SEED))
    ones = np.bitwise_count(strangers).sum() / (2000 * 128)
    assert 0.49 < ones < 0.51
    assert strangers.any(axis=1).all()


def test_free_cells_follow_the_secret_key() -> None:
    cells = locate(_pairs("keys", 10), 10, SEED)
    values = _pairs("values", 10)
    tables = [solve(cells, values, derive(KEY, number)) for number in range(2)]
    assert (tables[0] != tables[1]).mean() > 0.9


@pytest.mark.parametrize("width", [20, 30])
def test_a_crowded_store_is_solved_by_its_dense_cells(width: int) -> None:
    """Three cells a key out of very few: peeling stops early and elimination has to finish."""
    places = (_pairs("crowd", 60)[:, :1] % np.uint64(width**3)).astype(np.intp)
    sparse = np.hstack(
        [places % width, width + places // width % width, 2 * width + places // width**2]
    )
    cells = Cells(3 * width + 48, sparse, _pairs("dense", 60))
    assert peel(sparse, cells.size).core.size > 0
    values = _pairs("values", 60)
    assert (look_up(solve(cells, values, KEY), cells) == values).all()


def test_contradicting_keys_end_the_run() -> None:
    keys = np.repeat(_pairs("keys", 1), 2, axis=0)
    with pytest.raises(IntegrityError, match="new seed"):
        solve(locate(keys, 2, SEED), _pairs("values", 2), KEY)


def test_peeling_solves_each_equation_once_by_a_cell_of_its_own() -> None:
    sparse = locate(_pairs("keys", 5000), 5000, SEED).sparse
    peeling = peel(sparse, store_cells(5000))
    equations = np.concatenate([layer[0] for layer in peeling.layers])
    solved = np.concatenate([layer[1] for layer in peeling.layers])
    assert sorted([*equations, *peeling.core]) == list(range(5000))
    assert len(np.unique(solved)) == len(solved)
    assert (sparse[equations] == solved[:, np.newaxis]).any(axis=1).all()
