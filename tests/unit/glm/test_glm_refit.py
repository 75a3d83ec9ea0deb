"""The active party's last fit: alone, with exact shares, with drowned ones, and in between."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hdpvfl_mq.glm.block import ColumnBlock, scale_rows
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.methods.one_round.refit import refit as refit_all
from hdpvfl_mq.methods.one_round.refit import regress
from schemas.model import LossSpec

ROWS = 4000
RNG = np.random.default_rng(6)
X = scale_rows(RNG.normal(size=(ROWS, 3)))
SCORES = 1.5 * X[:, 0] + RNG.normal(size=ROWS)
THETA = X @ [2.0, -2.0, 1.0] + SCORES - 0.5
Y = np.where(THETA + RNG.logistic(size=ROWS) > 0, 1.0, 0.0)
BLOCK = ColumnBlock.align(X, np.arange(ROWS), intercept=True)
RESPONSE = Response(family(LossSpec(name="logistic")), Y)
ALL = slice(0, ROWS)


def refit(*given, **constants):
    return refit_all(*given, **constants)[0]


def conditional_scores(block, share, *, noise_std: float, prior_variance: float):
    regression = regress(block, share, noise_std=noise_std, prior_variance=prior_variance)
    return regression.expected(block, share, noise_std=noise_std)


def alone() -> np.ndarray:
    return refit(BLOCK, RESPONSE, [], noise_std=1.0, prior_variance=1.0)


def test_alone_it_is_ordinary_logistic_regression() -> None:
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X, Y)
    expected = np.append(model.coef_[0], model.intercept_) * math.sqrt(2.0)
    assert np.allclose(alone(), expected, atol=2e-4)


def test_exact_shares_are_taken_as_they_are() -> None:
    w = refit(BLOCK, RESPONSE, [SCORES], noise_std=1e-9, prior_variance=2.0)
    theta = BLOCK.scores(ALL, w).expose() + SCORES
    slope = BLOCK.gradient(ALL, RESPONSE.residual(ALL, BLOCK.scores(ALL, w), SCORES))
    assert np.abs(slope[:-1] + 0.5 / ROWS * w[:-1]).max() < 1e-6
    assert np.corrcoef(theta, THETA)[0, 1] > 0.995


def test_drowned_shares_change_nothing() -> None:
    noised = SCORES + 1e6 * RNG.normal(size=ROWS)
    w = refit(BLOCK, RESPONSE, [noised], noise_std=1e6, prior_variance=1e-6)
    assert np.allclose(w, alone(), atol=1e-3)


def test_noised_shares_give_nearly_the_weights_of_exact_ones() -> None:
    exact = refit(BLOCK, RESPONSE, [SCORES], noise_std=1e-9, prior_variance=2.0)
    noised = SCORES + 2.0 * RNG.normal(size=ROWS)
    w = refit(BLOCK, RESPONSE, [noised], noise_std=2.0, prior_variance=1.2)
    assert np.linalg.norm(w - exact) < np.linalg.norm(alone() - exact) / 2


def test_several_shares_add_up() -> None:
    once = refit(BLOCK, RESPONSE, [SCORES], noise_std=1e-9, prior_variance=2.0)
    halves = refit(BLOCK, RESPONSE, [SCORES / 2] * 2, noise_std=1e-9, prior_variance=2.0)
    assert np.allclose(once, halves, atol=1e-6)


def test_conditional_scores_by_the_formula() -> None:
    noised = SCORES + 0.5 * RNG.normal(size=ROWS)
    mean, doubt = conditional_scores(BLOCK, noised, noise_std=0.5, prior_variance=0.8)
    own = np.stack([BLOCK.scores(ALL, e).expose() for e in np.eye(4)], axis=1)
    ridge = 0.25 / (ROWS * 0.2 * 0.8) * np.eye(4)
    explained = own @ np.linalg.solve(own.T @ own / ROWS + ridge, own.T @ noised / ROWS)
    left = noised - explained
    signal = min(left.var() - 0.25, 0.8)
    trust = signal / (signal + 0.25)
    assert np.allclose(mean, explained + trust * (left - left.mean()))
    assert doubt == pytest.approx(signal * (1 - trust))


def test_a_share_quieter_than_its_noise_has_no_doubt_left() -> None:
    _, doubt = conditional_scores(BLOCK, np.zeros(ROWS), noise_std=1.0, prior_variance=1.0)
    assert doubt == 0.0


def test_only_a_logit_link_is_flattened() -> None:
    noised = SCORES + 2.0 * RNG.normal(size=ROWS)
    explained, doubt = conditional_scores(BLOCK, noised, noise_std=2.0, prior_variance=1.0)
    assert doubt > 0.1
    normal = Response(family(LossSpec(name="normal", residual_clip=100.0)), THETA.clip(-3, 3))
    w = refit(BLOCK, normal, [noised], noise_std=2.0, prior_variance=1.0)
    slope = BLOCK.gradient(ALL, normal.residual(ALL, BLOCK.scores(ALL, w), explained))
    assert np.abs(slope[:-1] + 0.5 / ROWS * w[:-1]).max() < 1e-9
    c = math.sqrt(1 + math.pi * doubt / 8)
    v = refit(BLOCK, RESPONSE, [noised], noise_std=2.0, prior_variance=1.0) / c
    slope = BLOCK.gradient(ALL, RESPONSE.residual(ALL, BLOCK.scores(ALL, v), explained / c))
    assert np.abs(slope[:-1] + 0.5 / ROWS * v[:-1]).max() < 1e-9


def test_the_same_label_everywhere_ends() -> None:
    response = Response(family(LossSpec(name="logistic")), np.ones(ROWS))
    w = refit(BLOCK, response, [SCORES], noise_std=1.0, prior_variance=1.0)
    assert np.isfinite(w).all()
    assert w[-1] > 5.0
