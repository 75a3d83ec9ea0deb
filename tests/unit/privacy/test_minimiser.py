"""The closed-form bounds of the one-round method worked out by hand, their grid and their plans."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.methods.descent.sensitivity import FLOAT_SLACK
from hdpvfl_mq.methods.one_round.bound import (
    MinimiserActive,
    MinimiserPassive,
    OneRelease,
    minimiser_active_plan,
    minimiser_passive_plan,
)
from hdpvfl_mq.privacy.accountant import affordable
from hdpvfl_mq.privacy.calibration import mu_of
from schemas.privacy import MU2_UNIT, Budget

ACTIVE = MinimiserActive(
    rows=1000,
    residual_bound=1.0,
    smoothness=0.25,
    strength=0.01,
    own_release=1.0 + math.tanh(0.25),
    intercept=True,
    error=1e-6,
    rounding=0.0,
)
PASSIVE = MinimiserPassive(
    rows=1000,
    clip_received=5.0,
    curvature=0.125,
    strength=0.002,
    weight_norm=8.0,
    score_bound=2.0,
    error=1e-6,
)


def test_active_by_hand() -> None:
    release = ACTIVE.release()
    assert release.others == pytest.approx(1 / 40)
    assert release.own == pytest.approx(1 + math.tanh(0.25) + 0.25 * 0.2 / math.sqrt(2))
    assert release.slack == pytest.approx(5e-7)
    without = replace(ACTIVE, intercept=False).release()
    assert without.own == pytest.approx(1 + math.tanh(0.25))
    assert replace(ACTIVE, own_release=1.99).release().own == 2.0


def test_passive_by_hand() -> None:
    release = PASSIVE.release()
    assert release.others == pytest.approx(6.0**2 / (1000 * 0.125 * 0.002))
    assert release.own == 4.0
    assert release.slack == 2e-6
    assert replace(PASSIVE, weight_norm=0.5).release().own == 1.0
    assert PASSIVE.d_model() == pytest.approx(2 * 6.0 / 2 + 2e-6)
    assert replace(PASSIVE, strength=1e-6).d_model() == 16.0


def test_the_square_charges_grid_and_solver_in_every_coordinate() -> None:
    release = OneRelease(rows=100, others=4.0, own=3.0, slack=0.1, rounding=0.0)
    for rounding, charged in ((0.0, FLOAT_SLACK), (0.4, 0.4)):
        step = 0.2 + 0.1 + charged
        square = replace(release, rounding=rounding).square(0.2)
        assert square == pytest.approx((2 + 10 * step) ** 2 + (3 + step) ** 2)


@pytest.mark.parametrize("bounds", [ACTIVE, PASSIVE, replace(PASSIVE, rows=10**7)])
def test_the_grid_is_the_largest_that_adds_less_than_a_thousandth(
    bounds: MinimiserActive | MinimiserPassive,
) -> None:
    release = bounds.release()
    exponent = release.coarsest_exponent()
    plain = math.sqrt(release.square(0.0))
    assert math.sqrt(release.square(2.0**exponent)) < 1.001 * plain
    assert math.sqrt(release.square(2.0 ** (exponent + 1))) >= 1.001 * plain


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 40.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_plans_are_one_release_within_the_budget_and_not_wasteful(
    epsilon: float, delta: float
) -> None:
    budget = Budget(epsilon=epsilon, delta=delta)
    plans = minimiser_active_plan(ACTIVE, budget), minimiser_passive_plan(PASSIVE, budget)
    for plan, bounds, bound in zip(plans, (ACTIVE, PASSIVE), (1.0, 2.0), strict=True):
        assert plan.rounds == 1
        assert plan.guarantee == "sound"
        assert plan.value_bound == bound
        assert affordable(budget, plan.spent.mu2_units, plan.spent.tau_units)
        square = bounds.release().square(2.0**plan.exponent)
        assert plan.mu2_cumulative[0] * MU2_UNIT >= square / plan.noise_std**2
        assert plan.mu >= mu_of(epsilon, delta) * (1 - 1e-4)


@pytest.mark.parametrize("field", ["residual_bound", "smoothness", "own_release", "error"])
def test_larger_constants_never_need_less_noise(field: str) -> None:
    more = replace(ACTIVE, **{field: getattr(ACTIVE, field) * 1.2})
    assert more.release().square(0.01) > ACTIVE.release().square(0.01)
    assert replace(ACTIVE, strength=0.02).release().square(0.01) < ACTIVE.release().square(0.01)


def test_no_finite_clip_no_plan() -> None:
    with pytest.raises(RefusedError, match="finite"):
        replace(PASSIVE, clip_received=math.inf)
    with pytest.raises(RefusedError, match="finite"):
        replace(ACTIVE, residual_bound=math.inf)


@pytest.mark.parametrize(
    "broken",
    [
        {"rows": 0},
        {"strength": 0.0},
        {"clip_received": -1.0},
        {"clip_received": math.nan},
        {"curvature": 0.0},
        {"weight_norm": 0.0},
        {"score_bound": 0.0},
        {"error": -1.0},
        {"error": math.inf},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(broken: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        replace(PASSIVE, **broken)
