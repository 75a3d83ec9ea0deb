"""The sound recursion on small schedules worked out by hand, and its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.methods.descent.bound import ActiveBounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.methods.descent.sensitivity import FLOAT_SLACK, coarsest_grid, profile

CLOSE = {"rel": 1e-6}


def passive(**changes: object) -> PassiveBounds:
    return PassiveBounds(**{"radius": 2.0, "clip_received": 1.0, "rho": 1.0, **changes})


def active(**changes: object) -> ActiveBounds:
    settings = {"radius": 5.0, "residual_bound": 1.0, "smoothness": 0.25, "rho": 1.0}
    return ActiveBounds(**{**settings, "rounding": 0.0, **changes})


def test_passive_by_hand() -> None:
    # Full batch of 10 rows, eta = 1: R = 0, 1, 2, 2 and d = 0, 0.2, 0.4, 0.6.
    result = profile(passive(), PublicSchedule((10,), 4, 1.0), grid=0.0)
    squares = [0.0, 9 * 0.2**2 + 4, 9 * 0.4**2 + 16, 9 * 0.6**2 + 16]
    assert result.cumulative == pytest.approx(np.cumsum(squares), **CLOSE)
    assert result.total == pytest.approx(math.sqrt(sum(squares)), **CLOSE)
    assert result.distance == pytest.approx(0.8, **CLOSE)


def test_the_first_round_from_zero_weights_costs_nothing() -> None:
    assert profile(passive(), PublicSchedule((10,), 1, 1.0), grid=2.0**-4).total == 0.0


def test_passive_classes_of_two_batches_by_hand() -> None:
    result = profile(passive(rho=0.5), PublicSchedule((4, 5), 2, 1.0), grid=0.0)
    # The row of batch 0 is pushed by 2/4 in rounds 0 and 2, that of batch 1 by 2/5 in 1 and 3.
    first = [0, 5 * 0.5**2, 3 * 0.25**2 + (2 * 1.5) ** 2, 5 * 0.625**2]
    second = [0, (2 * 1.0) ** 2, 4 * 0.4**2, 4 * 0.2**2 + (2 * 1.75) ** 2]
    expected = np.maximum(np.cumsum(first), np.cumsum(second))
    assert result.cumulative == pytest.approx(expected, **CLOSE)


def test_active_by_hand_with_local_steps() -> None:
    schedule = PublicSchedule((10,), 2, 1.0)
    result = profile(active(local_steps=3), schedule, grid=0.0)
    assert result.cumulative == pytest.approx([4.0, 4.0 + 9 * (0.25 * 0.6) ** 2 + 4.0], **CLOSE)
    smaller = profile(active(own_release=1.5), PublicSchedule((10,), 1, 1.0), grid=0.0)
    assert smaller.total == pytest.approx(1.5, **CLOSE)
    never_larger = profile(active(own_release=7.0), PublicSchedule((10,), 1, 1.0), grid=0.0)
    assert never_larger.total == pytest.approx(2.0, **CLOSE)


def test_the_grid_is_charged_per_coordinate_and_not_times_beta() -> None:
    grid = 0.5 - FLOAT_SLACK
    result = profile(active(), PublicSchedule((10,), 2, 1.0), grid=grid)
    second = 9 * (0.25 * 0.2 + 0.5) ** 2 + 2.5**2
    assert result.cumulative == pytest.approx([2.5**2, 2.5**2 + second], **CLOSE)


def test_rows_not_yet_used_cost_nothing() -> None:
    # Round 0 uses batch 0: rows of batch 1 have d = 0 and are outside it, grid or not.
    result = profile(active(), PublicSchedule((3, 3), 1, 1.0), grid=0.5)
    assert result.cumulative[0] == pytest.approx(2.5**2, **CLOSE)
    only_first_row = 2.5**2 + 3 * (0.25 * 2 / 3 + 0.5) ** 2
    assert result.cumulative[1] == pytest.approx(max(only_first_row, 2.5**2), **CLOSE)


def test_roundings_of_residuals_are_charged_where_they_are_and_where_they_lead() -> None:
    # Two local steps of size 0.5 in each of 3 rounds: weights drift by 3 * 0.01.
    schedule, bounds = PublicSchedule((10,), 3, 0.5), active(rounding=0.01, local_steps=2)
    recursion = bounds.recursion(schedule)
    assert recursion.drift(schedule) == pytest.approx(0.03)
    assert recursion.slack(schedule) == pytest.approx(0.01 + 0.25 * 0.03)
    plain = profile(active(local_steps=2), schedule, grid=recursion.slack(schedule) - FLOAT_SLACK)
    assert profile(bounds, schedule, grid=0.0).total == pytest.approx(plain.total, rel=1e-12)
    assert profile(bounds, schedule, grid=0.0).distance > plain.distance + 0.0299
    assert active(rounding=1e9).recursion(schedule).drift(schedule) == 10.0  # never beyond 2k


def test_the_scores_of_large_weights_are_charged_for_their_roundings() -> None:
    schedule = PublicSchedule((10,), 2, 1.0)
    assert passive().recursion(schedule).slack(schedule) == FLOAT_SLACK
    assert passive(radius=1e6).recursion(schedule).slack(schedule) == pytest.approx(1e6 * 2.0**-39)


def test_distance_is_capped_at_twice_the_radius() -> None:
    result = profile(passive(radius=0.1), PublicSchedule((1,), 5, 1.0), grid=0.0)
    assert result.distance == pytest.approx(0.2, **CLOSE)


def test_a_round_that_may_be_skipped_contracts_nothing() -> None:
    schedule = PublicSchedule((4, 4), 3, 1.0)
    skipping = profile(passive(rho=0.1, may_skip=True), schedule, grid=0.0)
    plain = profile(passive(rho=1.0), schedule, grid=0.0)
    assert skipping.total == plain.total
    assert profile(passive(rho=0.1), schedule, grid=0.0).total < plain.total


def test_a_warm_start_carries_its_distance() -> None:
    schedule = PublicSchedule((10,), 2, 1.0)
    warm = profile(passive(start_distance=0.5, start_radius=2.0), schedule, grid=0.0)
    assert warm.cumulative[0] == pytest.approx(9 * 0.25 + 16, **CLOSE)
    with pytest.raises(SettingsError, match="start radius"):
        profile(passive(start_distance=0.5), schedule, grid=0.0)
    assert profile(active(start_distance=1.0), schedule, grid=0.0).cumulative[0] == pytest.approx(
        9 * 0.25**2 + 4, **CLOSE
    )


def test_step_sizes_and_factors_may_vary_by_round() -> None:
    schedule = PublicSchedule((10,), 2, (1.0, 0.5))
    result = profile(passive(rho=(1.0, 0.5)), schedule, grid=0.0)
    assert result.distance == pytest.approx(0.5 * 0.2 + 0.1, **CLOSE)
    with pytest.raises(SettingsError, match="2 rounds"):
        profile(passive(rho=(1.0,)), schedule, grid=0.0)


@pytest.mark.parametrize("bounds", [passive(), active(), active(local_steps=4), passive(rho=0.7)])
def test_the_grid_is_the_largest_that_adds_less_than_a_thousandth(
    bounds: PassiveBounds | ActiveBounds,
) -> None:
    schedule = PublicSchedule((40, 41, 41), 3, 2.0)
    exponent = coarsest_grid(bounds, schedule)
    exact = profile(bounds, schedule, grid=-FLOAT_SLACK).total
    assert profile(bounds, schedule, grid=2.0**exponent).total < 1.001 * exact * (1 + 1e-9)
    assert profile(bounds, schedule, grid=2.0 ** (exponent + 1)).total > 1.001 * exact


def test_larger_inputs_never_give_a_smaller_bound() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        rows = tuple(int(x) for x in rng.integers(1, 20, size=rng.integers(1, 5)))
        schedule = PublicSchedule(rows, int(rng.integers(1, 4)), float(rng.uniform(0.1, 3)))
        base = passive(rho=0.5)
        total = profile(base, schedule, grid=0.01).total
        for more in (passive(rho=0.6), passive(rho=0.5, clip_received=1.2), passive(radius=2.5)):
            assert profile(more, schedule, grid=0.01).total >= total * (1 - 1e-12) or more.rho == 1
        assert profile(base, schedule, grid=0.02).total >= total


@pytest.mark.parametrize(
    "broken",
    [
        lambda: PublicSchedule((), 1, 0.1),
        lambda: PublicSchedule((0,), 1, 0.1),
        lambda: PublicSchedule((5,), 0, 0.1),
        lambda: PublicSchedule((5,), 1, 0.0),
        lambda: PublicSchedule((5,), 1, math.inf),
        lambda: PublicSchedule((1,), 2_000_000, 0.1),
        lambda: profile(passive(rho=1.1), PublicSchedule((5,), 1, 0.1), grid=0.0),
        lambda: profile(passive(radius=0.0), PublicSchedule((5,), 1, 0.1), grid=0.0),
        lambda: profile(passive(clip_received=0.0), PublicSchedule((5,), 1, 0.1), grid=0.0),
        lambda: profile(active(local_steps=0), PublicSchedule((5,), 1, 0.1), grid=0.0),
        lambda: profile(active(start_distance=11.0), PublicSchedule((5,), 1, 0.1), grid=0.0),
    ],
)
def test_what_makes_no_sense_is_refused(broken: object) -> None:
    with pytest.raises(SettingsError):
        broken()
