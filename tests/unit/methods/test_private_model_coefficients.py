"""Coefficients and expectations from noised scores: overlap between parties is found in sums."""

import numpy as np
import pytest

from hdpvfl_mq.methods.private_model.coefficients import coefficient_prior, prior_mean
from hdpvfl_mq.methods.private_model.expectation import Shares, expect

NOISE = 8.0  # deviations of a score, about what epsilon 1 at delta 0.01 leaves
ROWS = 40_000


def received(scores, noise_std=NOISE, seed=1):
    """Scores of partners as columns, noised."""
    dice = np.random.default_rng(seed)
    sizes = scores.std(axis=0)
    return Shares(
        values=scores + noise_std * sizes * dice.normal(size=scores.shape),
        noise_std=noise_std * sizes,
        size=sizes,
    )


def columns(seed=0, rows=ROWS):
    dice = np.random.default_rng(seed)
    return np.hstack([dice.normal(size=(rows, 3)), np.ones((rows, 1))]), dice


def prior_of(A, theta, shares, dice):
    mean = 1 / (1 + np.exp(-theta))
    y = (dice.random(len(A)) < mean).astype(float)
    p = y.mean()
    return coefficient_prior(A, y - p, p * (1 - p), expect(A, shares))


def test_a_score_that_repeats_own_columns_is_seen_through_the_noise():
    A, dice = columns()
    repeated, new = 0.3 * A[:, 0], 0.3 * dice.normal(size=ROWS)
    expected = expect(A, received(np.column_stack([repeated, new])))
    explained = (A @ expected.slopes).var(axis=0) / expected.shares.size**2
    assert explained[0] > 0.7
    assert explained[1] < 0.1


@pytest.mark.parametrize(("alike", "low", "high"), [(True, 0.5, 1.6), (False, 2.6, 5.0)])
def test_partners_with_the_same_score_share_one_coefficient(alike, low, high):
    A, dice = columns()
    each = 0.5 * dice.normal(size=(ROWS, 5))
    if alike:
        each = np.repeat(each[:, :1], 5, axis=1)
    theta = each[:, 0] if alike else each.sum(axis=1)
    found = prior_of(A, theta, received(each), dice)
    assert low < found.mean.sum() < high


def test_few_rows_and_exact_scores_start_from_the_public_mean():
    for rows, noise, std in ((1_000, NOISE, 0.01), (4_000, 0.0, 0.5)):
        A, dice = columns(rows=rows)
        scores = 0.5 * dice.normal(size=(rows, 2))
        prior = prior_of(A, scores.sum(axis=1), received(scores, noise), dice)
        assert prior.mean.tolist() == [prior_mean(2)] * 2
        assert prior.common_std < std
