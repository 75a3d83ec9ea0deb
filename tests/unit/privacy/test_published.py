"""Lemmas 2 and 3 as published, and what a run with them really costs."""

from __future__ import annotations

import math

import pytest

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods.descent.bound import PublicSchedule
from hdpvfl_mq.methods.descent.plan import plan_paper
from hdpvfl_mq.methods.descent.published import (
    paper_active_bounds,
    paper_passive_bounds,
    published_active,
    published_passive,
)
from hdpvfl_mq.methods.descent.sensitivity import profile
from hdpvfl_mq.methods.prediction.bound import prediction_square
from schemas.model import LossSpec
from schemas.privacy import Budget

LOGISTIC = family(LossSpec(name="logistic"))

BREAST = PublicSchedule((455,), 10, 1.0)


def test_the_lemmas_by_hand() -> None:
    passive = published_passive(BREAST, radius=1.0, residual_bound=1.0)
    assert passive**2 == pytest.approx(4 * 100 * 10 / 455 + 8 * 100 / 455 + 40)
    active = published_active(
        BREAST, radius=1.0, residual_bound=1.0, beta_theta=0.25, beta_y=1.1, label_bound=1.0
    )
    reach = 0.25 + 1.1
    squares = 4 * 0.0625 * 100 * 10 / 455, 8 * reach * 0.25 * 100 / 455, 4 * reach**2 * 10
    assert active**2 == pytest.approx(sum(squares))


def test_a_paper_run_labelled_one_really_is_mu_5_8_on_breast() -> None:
    published = published_passive(BREAST, radius=1.0, residual_bound=1.0)
    budget = Budget(epsilon=1.0, delta=0.01)
    plan = plan_paper(
        paper_passive_bounds(1.0), BREAST, budget, value_bound=1.0, published=published
    )
    assert plan.mu == pytest.approx(5.8, rel=0.01)
    assert plan.epsilon(0.01) > 25


def test_the_true_cost_of_a_passive_paper_run() -> None:
    result = profile(paper_passive_bounds(1.0), PublicSchedule((5, 5), 1, 0.1), grid=0.0)
    assert result.cumulative == pytest.approx([0.0, 5 * 4.0], rel=1e-6)


def test_an_active_paper_run_is_infinite_where_the_argument_fails() -> None:
    def cost(rho: float | None, bound: float | None) -> float:
        bounds = paper_active_bounds(
            rho, smoothness=0.25, radius=1.0, residual_bound=bound, rounding=0.0
        )
        return profile(bounds, PublicSchedule((5,), 2, 0.1), grid=0.0).total

    assert cost(1.0, 1.0) == pytest.approx(math.sqrt(8), rel=1e-3)
    assert math.isinf(cost(None, 1.0))  # the step may expand
    assert math.isinf(cost(1.0, None))  # nothing bounds the residual


def test_a_paper_run_with_local_steps_books_them() -> None:
    def total(local_steps: int) -> float:
        bounds = paper_active_bounds(
            0.95,
            smoothness=0.25,
            radius=1.0,
            residual_bound=1.0,
            rounding=0.0,
            local_steps=local_steps,
        )
        return profile(bounds, PublicSchedule((5,), 3, 1.0), grid=0.0).total

    assert total(4) > total(1)


def test_an_infinite_paper_plan_still_has_the_published_noise() -> None:
    bounds = paper_active_bounds(1.0, smoothness=2.0, radius=1.0, residual_bound=None, rounding=0.0)
    schedule = PublicSchedule((5,), 2, 0.1)
    plan = plan_paper(
        bounds, schedule, Budget(epsilon=1.0, delta=0.01), value_bound=math.inf, published=3.0
    )
    assert plan.infinite
    assert math.isinf(plan.epsilon(0.01))
    assert plan.noise_std == pytest.approx(3.0 * math.sqrt(2 * math.log(125)), rel=1e-4)


def test_logistic_own_release_is_reached_and_never_exceeded() -> None:
    k = 1.0

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    bound = LOGISTIC.release_bound(k)
    assert bound == pytest.approx(2 * sigmoid(k))
    worst = max(
        sigmoid(r + u) + sigmoid(-r - v)
        for r in [x / 10 for x in range(-30, 31)]
        for u in (-k, 0, k)
        for v in (-k, 0, k)
    )
    assert worst <= bound
    assert worst == pytest.approx(bound)


def test_prediction_costs_by_hand() -> None:
    square = prediction_square(10, distance=0.1, radius=2.0, grid=0.0)
    assert square == pytest.approx(9 * 0.01 + 16, rel=1e-6)
    with pytest.raises(SettingsError):
        prediction_square(0, distance=0.1, radius=2.0, grid=0.0)
    with pytest.raises(SettingsError):
        prediction_square(1, distance=4.1, radius=2.0, grid=0.0)
