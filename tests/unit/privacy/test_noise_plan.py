"""Plans: within the budget, as little noise as that allows, and every round priced."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.methods.descent.bound import ActiveBounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.methods.descent.plan import plan_sound
from hdpvfl_mq.methods.descent.sensitivity import profile
from hdpvfl_mq.methods.prediction.plan import plan_scores
from hdpvfl_mq.privacy.accountant import Spent, affordable
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.noise import ladder
from hdpvfl_mq.privacy.plan import plan_none, plan_silent
from schemas.privacy import MU2_UNIT_BITS, Budget

SCHEDULE = PublicSchedule((40, 41), 3, 1.0)
PASSIVE = PassiveBounds(radius=2.0, clip_received=5.0, rho=0.9)
ACTIVE = ActiveBounds(
    radius=5.0, residual_bound=1.0, smoothness=0.25, rho=1.0, rounding=0.0, local_steps=3
)


@pytest.mark.parametrize("bounds", [PASSIVE, ACTIVE])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 40.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_a_plan_is_within_its_budget_and_not_wasteful(
    bounds: PassiveBounds | ActiveBounds, epsilon: float, delta: float
) -> None:
    budget = Budget(epsilon=epsilon, delta=delta)
    plan = plan_sound(bounds, SCHEDULE, budget, value_bound=2.0)
    assert affordable(budget, plan.spent.mu2_units, plan.spent.tau_units)
    assert plan.epsilon(delta) <= epsilon
    assert plan.mu >= mu_of(epsilon, delta) * (1 - 1e-4)
    assert plan.sensitivity / plan.noise_std <= plan.mu


def test_every_round_is_priced_from_above() -> None:
    plan = plan_sound(PASSIVE, SCHEDULE, Budget(epsilon=1.0, delta=0.01), value_bound=2.0)
    squares = profile(PASSIVE, SCHEDULE, grid=2.0**plan.exponent).cumulative
    booked = np.array(plan.mu2_cumulative) * 2.0**-MU2_UNIT_BITS
    assert (booked >= squares / plan.noise_std**2).all()
    assert (booked <= squares / plan.noise_std**2 + 2 * 2.0**-MU2_UNIT_BITS).all()
    rows = np.cumsum([SCHEDULE.rows_in(t) for t in range(SCHEDULE.rounds)])
    assert list(plan.tau_cumulative) == [int(n) * ladder(plan.ratio).tau_units for n in rows]


def test_ratio_and_noise_are_exact_binary_fractions() -> None:
    plan = plan_sound(ACTIVE, SCHEDULE, Budget(epsilon=1.0, delta=0.01), value_bound=1.0)
    assert plan.ratio * 2.0**plan.exponent == plan.noise_std


def test_an_epsilon_that_the_sampler_cannot_carry_buys_a_smaller_one() -> None:
    budget = Budget(epsilon=500.0, delta=0.01)
    plan = plan_sound(PASSIVE, SCHEDULE, budget, value_bound=2.0)
    assert affordable(budget, plan.spent.mu2_units, plan.spent.tau_units)
    assert 50.0 < plan.epsilon(0.01) < 80.0


def test_no_finite_clip_no_sound_plan() -> None:
    wild = PassiveBounds(radius=2.0, clip_received=math.inf, rho=1.0)
    unbounded = ActiveBounds(
        radius=1.0, residual_bound=math.inf, smoothness=1.0, rho=1.0, rounding=0.0
    )
    for bounds in (wild, unbounded):
        with pytest.raises(RefusedError, match="finite"):
            plan_sound(bounds, SCHEDULE, Budget(epsilon=1.0, delta=0.01), value_bound=2.0)


def test_a_run_whose_releases_cost_nothing_has_a_plan_too() -> None:
    plan = plan_sound(
        PASSIVE, PublicSchedule((9,), 1, 1.0), Budget(epsilon=1.0, delta=0.01), value_bound=2.0
    )
    assert plan.spent.mu2_units == 0
    assert plan.epsilon(0.01) == 0.0


def test_values_that_do_not_fit_the_wire_are_refused() -> None:
    with pytest.raises(SettingsError, match="62-bit"):
        plan_sound(PASSIVE, SCHEDULE, Budget(epsilon=1.0, delta=0.01), value_bound=1e17)


def test_no_guarantee_means_infinite() -> None:
    plan = plan_none(4)
    assert plan.infinite
    assert math.isinf(plan.mu)
    assert plan.spent.exact == 4


def test_a_prediction_is_priced_for_the_own_row_and_every_other_score() -> None:
    budget = Budget(epsilon=1.0, delta=0.01)
    plan = plan_scores(50, distance=0.5, radius=2.0, budget=budget)
    assert affordable(budget, plan.spent.mu2_units, plan.spent.tau_units)
    (paid,) = plan.mu2_cumulative
    assert paid * 2.0**-MU2_UNIT_BITS * plan.noise_std**2 == pytest.approx(
        49 * 0.5**2 + 16, rel=1e-2
    )
    assert plan.value_bound == 2.0


def test_a_silent_party_pays_nothing() -> None:
    plan = plan_silent()
    assert plan.spent == Spent()
    assert plan.mu == 0.0
    assert plan.epsilon(0.01) == 0.0
