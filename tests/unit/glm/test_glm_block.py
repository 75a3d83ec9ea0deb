"""Row scaling, intercept, and the two products of a round, in memory and mapped from disk."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.lib.format import open_memmap

from hdpvfl_mq.errors import DataError
from hdpvfl_mq.glm import block as block_module
from hdpvfl_mq.glm import reorder
from hdpvfl_mq.glm.block import SCORE_ROUNDING, ColumnBlock, scale_rows

RNG = np.random.default_rng(17)
X = RNG.normal(size=(101, 7)) * 10.0 ** RNG.uniform(-3, 3, size=(101, 1))
ORDER = RNG.permutation(101)[:90]


@given(arrays(np.float64, (4, 3), elements=st.floats(-1e308, 1e308)))
def test_scaled_rows_have_norm_at_most_one(rows: np.ndarray) -> None:
    norms = np.linalg.norm(scale_rows(rows), axis=1)
    assert np.isfinite(norms).all()
    assert norms.max() <= 1.0 + 1e-15


def test_scaling_keeps_short_rows_and_the_direction_of_long_ones() -> None:
    scaled = scale_rows(X)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    assert np.allclose(scaled, X / np.maximum(1.0, norms), rtol=1e-14)
    assert np.array_equal(scaled[norms[:, 0] < 1.0], X[norms[:, 0] < 1.0])


def test_intercept_is_the_last_column_and_keeps_the_norm() -> None:
    block = ColumnBlock.align(X, ORDER, intercept=True)
    assert (block.rows, block.columns, block.free) == (90, 8, (7,))
    ones = block.scores(slice(0, 90), np.eye(8)[7]).expose()
    assert np.allclose(ones, 1 / np.sqrt(2.0))
    whole = np.stack([block.scores(slice(0, 90), e).expose() for e in np.eye(8)], axis=1)
    assert np.linalg.norm(whole, axis=1).max() <= 1.0 + 1e-15
    assert np.allclose(whole[:, :7] * np.sqrt(2.0), scale_rows(X[ORDER]))


def test_unscaled_block_is_the_data_as_it_is() -> None:
    block = ColumnBlock.align(X, ORDER, intercept=True, scaled=False)
    w = RNG.normal(size=8)
    assert np.allclose(block.scores(slice(3, 50), w).expose(), X[ORDER][3:50] @ w[:7] + w[7])


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_starting_score_is_what_was_asked(*, scaled: bool, intercept: bool) -> None:
    block = ColumnBlock.align(X, ORDER, intercept=intercept, scaled=scaled)
    scores = block.scores(slice(0, 90), block.start_weights(-2.5)).expose()
    assert np.allclose(scores, -2.5 if intercept else 0.0)


def test_batch_gradients_add_up_to_the_whole() -> None:
    block = ColumnBlock.align(X, ORDER)
    h = RNG.normal(size=90)
    whole = block.gradient(slice(0, 90), h)
    parts = [block.gradient(s, h[s]) * 30 for s in (slice(0, 30), slice(30, 60), slice(60, 90))]
    assert np.allclose(whole * 90, sum(parts))
    assert np.allclose(whole, scale_rows(X[ORDER]).T @ h / 90)


@pytest.mark.parametrize("intercept", [True, False])
def test_mapped_float32_equals_memory_chunk_by_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, intercept: bool
) -> None:
    monkeypatch.setattr(block_module, "CHUNK_NUMBERS", 40)
    monkeypatch.setattr(reorder, "RUN_NUMBERS", 100)

    def allocate(shape, dtype):
        name = f"{len(list(tmp_path.iterdir()))}.npy"
        return open_memmap(tmp_path / name, mode="w+", dtype=dtype, shape=shape)

    source = allocate(X.shape, np.float32)
    source[:] = X
    memory = ColumnBlock.align(X, ORDER, intercept=intercept)
    mapped = ColumnBlock.align(source, ORDER, intercept=intercept, allocate=allocate)
    same = ColumnBlock.align(np.array(source), ORDER, intercept=intercept)
    assert np.array_equal(mapped._X, same._X)
    w, rows = RNG.normal(size=memory.columns), slice(11, 83)
    h = RNG.normal(size=72)
    assert np.allclose(mapped.scores(rows, w).expose(), memory.scores(rows, w).expose(), atol=1e-6)
    assert np.allclose(mapped.gradient(rows, h), memory.gradient(rows, h), atol=1e-6)
    assert isinstance(mapped._X, np.memmap)
    norms = np.linalg.norm(np.asarray(mapped._X, dtype=np.float64), axis=1)
    assert norms.max() <= 1.0


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_scaled_in_parts_are_those_scaled_at_once(
    monkeypatch: pytest.MonkeyPatch, *, intercept: bool
) -> None:
    """Parts share their memory, and the last one is shorter."""
    monkeypatch.setattr(block_module, "_SCALED_NUMBERS", 100)
    before = X.copy()
    aligned = ColumnBlock.align(X, ORDER, intercept=intercept)._X
    length = np.sqrt(2.0) if intercept else 1.0
    assert np.array_equal(aligned[:, :7], scale_rows(X[ORDER]) / length)
    assert np.array_equal(aligned[:, 7:], np.full((90, int(intercept)), 1.0 / length))
    assert np.array_equal(X, before)


def test_rounding_to_float32_never_leaves_the_unit_ball() -> None:
    long = RNG.normal(size=(5000, 30)).astype(np.float32) * 100.0
    block = ColumnBlock.align(long, np.arange(5000))
    assert block._X.dtype == np.float32
    norms = np.linalg.norm(block._X.astype(np.float64), axis=1)
    assert 0.999999 < norms.min() <= norms.max() <= 1.0


def test_what_is_not_a_block_is_refused() -> None:
    for bad in (np.zeros(3), np.zeros((3, 0)), np.zeros((3, 2), dtype=np.int64)):
        with pytest.raises(DataError):
            ColumnBlock(bad)


def test_a_block_shows_and_ships_nothing() -> None:
    block = ColumnBlock.align(X, ORDER)
    assert repr(block) == "<ColumnBlock of 90 rows and 7 columns>"
    with pytest.raises(TypeError, match="cannot leave"):
        pickle.dumps(block)


def test_a_score_of_many_columns_is_off_by_no_more_than_is_charged() -> None:
    dice = np.random.default_rng(2)
    X = scale_rows(dice.normal(size=(5, 9000)))
    w = dice.normal(size=9000) * 10.0 ** dice.uniform(-3, 3, size=9000)
    scores = ColumnBlock(X).scores(slice(0, 5), w).expose()
    exact = np.array([math.fsum(row * w) for row in X])
    assert np.abs(scores - exact).max() <= SCORE_ROUNDING / 2.0 * np.linalg.norm(w)
    assert np.allclose(scores, X @ w)
