"""The demonstration on many seeds: its split is that of `hdpvfl up`."""

import numpy as np

from hdpvfl_mq.data.bundled import load_dataset
from hdpvfl_mq.data.splits import held_out
from tests.lazily import Lazily

script = Lazily("scripts.visits")


def test_rows_and_columns_are_those_of_the_demonstration():
    data = script.visits(3)
    active = load_dataset("visits").active
    assert [len(columns) for columns in data.columns] == [5, 2, 2]
    assert data.held.sum() == held_out(active["id"], seed=3).sum()
    assert data.y.sum() == active["y"].astype(float).sum()
    assert np.allclose(data.X[~data.held].std(axis=0), 1.0)
