"""What own columns and a noised score tell of the exact one."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.methods.score_regression import ScoreRegression

DICE = np.random.default_rng(6)
BLOCK = ColumnBlock.align(DICE.normal(size=(4000, 3)), np.arange(4000), intercept=True)
b = np.array([1.5, 0.0, -1.0, 0.2])
TOLD = BLOCK.scores(slice(0, 4000), b).expose()
SCORES = TOLD + 0.8 * DICE.normal(size=4000)


def test_it_is_nearer_to_the_exact_scores_than_either_alone() -> None:
    noised = SCORES + 1.5 * DICE.normal(size=4000)
    found, doubt = ScoreRegression(b, 0.64).expected(BLOCK, noised, noise_std=1.5)
    error = np.mean((found - SCORES) ** 2)
    assert error == pytest.approx(doubt, rel=0.1)
    assert error < min(np.mean((noised - SCORES) ** 2), np.mean((TOLD - SCORES) ** 2))


def test_drowned_scores_leave_what_the_columns_tell() -> None:
    noised = SCORES + 1e6 * DICE.normal(size=4000)
    found, doubt = ScoreRegression(b, 0.64).expected(BLOCK, noised, noise_std=1e6)
    assert np.abs(found - TOLD).max() < 1e-2
    assert doubt == pytest.approx(0.64)


def test_without_variance_there_is_no_doubt() -> None:
    found, doubt = ScoreRegression(b, 0.0).expected(BLOCK, SCORES, noise_std=0.0)
    assert doubt == 0.0
    assert np.allclose(found, TOLD)
