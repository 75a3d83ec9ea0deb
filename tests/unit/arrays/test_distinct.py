"""hdpvfl_mq/arrays/distinct: what numpy's functions give, without numpy.ma."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.arrays.distinct import distinct, union


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (30, 7)])
def test_values_are_those_of_numpy(shape, dtype):
    dice = np.random.default_rng(0)
    one, other = (dice.integers(0, 300, shape).astype(dtype) for _ in range(2))
    for ours, theirs in (
        (distinct(one), np.unique(one)),
        (union(one.ravel(), other.ravel()), np.union1d(one, other)),
    ):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
