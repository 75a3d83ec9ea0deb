"""Random, climbing and built adversaries against the bounds of the one-round method.

No pair of neighbours exceeds them, built pairs come within a few per cent, and a bound that lacks
one of its terms, or a fit that lacks one of its limits, is exceeded. The one exception is the move
of the intercept in the own row of logistic: no pair was found that needs it (docs/one-round.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from minimiser_built import (
    HUBER,
    huber_pair,
    intercept_pair,
    logistic_pair,
    passive_pair,
    turned_pair,
    weak_pair,
)
from minimiser_pairs import (
    ActiveSetting,
    Array,
    Pair,
    PassiveSetting,
    active_release,
    born,
    climb,
    every_loss,
    neighbour,
    passive_release,
    passive_weights,
    scores,
    with_intercept,
)

from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.methods.one_round.bound import OneRelease
from hdpvfl_mq.methods.one_round.fit import fit_active, fit_passive
from hdpvfl_mq.methods.one_round.rule import active_terms
from schemas.methods import OneRound

ROUNDING = 1 + 1e-9


def moves(first: Array, second: Array, grid: float = 0.0) -> tuple[Array, Array]:
    """Squared move of the other rows, and move of row 0, of every run."""
    if grid:
        first, second = np.rint(first / grid) * grid, np.rint(second / grid) * grid
    apart = first - second
    return (apart[:, 1:] ** 2).sum(axis=1), np.abs(apart[:, 0])


def share_of(release: OneRelease, grid: float, others: Array, own: Array) -> Array:
    """Share of Delta^2, after a check of each part."""
    assert (np.sqrt(others) <= math.sqrt(release.square(grid)) * ROUNDING).all()
    if grid == 0.0:
        assert (others <= release.others * ROUNDING + 1e-15).all()
        assert (own <= release.own * ROUNDING).all()
    share = (others + own**2) / release.square(grid)
    assert (share <= ROUNDING).all()
    return share


def active_share(setting: ActiveSetting, grid: float) -> Callable[[Pair], Array]:
    release = setting.bounds().release()

    def share(pair: Pair) -> Array:
        X, y = neighbour(pair)
        before = active_release(pair["X"], pair["y"], setting)
        return share_of(release, grid, *moves(before, active_release(X, y, setting), grid))

    return share


def passive_share(setting: PassiveSetting, grid: float) -> Callable[[Pair], Array]:
    bounds = setting.bounds()
    release, distance = bounds.release(), bounds.d_model()

    def share(pair: Pair) -> Array:
        X, _ = neighbour(pair)
        z = pair["received"]
        parted = passive_weights(pair["X"], z, setting) - passive_weights(X, z, setting)
        assert (np.linalg.norm(parted, axis=1) <= distance * ROUNDING).all()
        before = passive_release(pair["X"], z, setting)
        return share_of(release, grid, *moves(before, passive_release(X, z, setting), grid))

    return share


def settings(rng: np.random.Generator, loss: Family) -> tuple[ActiveSetting, PassiveSetting]:
    rows = int(rng.integers(2, 24))
    active = ActiveSetting(
        loss=loss,
        rows=rows,
        strength=loss.smoothness * float(rng.choice([0.5, 4.0, 40.0])) / rows,
        reach=float(rng.choice([0.2, 0.5, 3.0])),
    )
    curvature = float(10 ** rng.uniform(-1, 0.5))
    passive = PassiveSetting(
        rows=rows,
        clip=float(10 ** rng.uniform(-0.5, 1)),
        curvature=curvature,
        strength=curvature * float(10 ** rng.uniform(-1.5, 0.5)),
        norm=float(10 ** rng.uniform(-0.5, 1)),
        score_bound=float(10 ** rng.uniform(-1, 0.5)),
    )
    return active, passive


def attack_all(rng: np.random.Generator, *, rounds: int, runs: int, steps: int) -> int:
    """Every loss on the active side, and as many passive settings; gives the pairs tried."""
    tried = 0
    for _ in range(rounds):
        for loss in every_loss():
            active, passive = settings(rng, loss)
            grid = float(rng.choice([0.0, 2.0**-6, 2.0**-3]))
            columns = int(rng.integers(1, 4))
            for share in (active_share(active, grid), passive_share(passive, grid)):
                climb(rng, born(rng, runs, active.rows, columns, loss), loss, share, steps)
            tried += 2 * runs * (steps + 1)
    return tried


def test_twenty_thousand_adversarial_pairs_stay_within_the_bounds() -> None:
    assert attack_all(np.random.default_rng(3), rounds=2, runs=30, steps=20) >= 20_000


@pytest.mark.slow
def test_a_million_adversarial_pairs_stay_within_the_bounds() -> None:
    assert attack_all(np.random.default_rng(4), rounds=20, runs=50, steps=62) >= 1_000_000


def test_the_active_bound_is_reached_by_huber() -> None:
    setting, before, after = huber_pair()
    release = setting.bounds().release()
    others, own = moves(before, after)
    assert others[0] == pytest.approx(release.others, rel=1e-6)
    assert own[0] == pytest.approx(release.own, rel=1e-6)
    assert share_of(release, 0.0, others, own)[0] > 1 - 1e-6


def test_the_logistic_bound_is_reached_within_four_per_cent() -> None:
    setting, before, after = logistic_pair()
    reached = share_of(setting.bounds().release(), 0.0, *moves(before, after))[0]
    assert 0.96 < math.sqrt(reached) <= 1.0


def test_the_passive_bound_is_reached_within_a_tenth() -> None:
    setting, before, after = passive_pair()
    reached = share_of(setting.bounds().release(), 0.0, *moves(before, after))[0]
    assert 0.9 < math.sqrt(reached) <= 1.0


def test_climbing_comes_within_a_tenth_from_random_runs() -> None:
    rng = np.random.default_rng(8)
    active = ActiveSetting(loss=HUBER, rows=14, strength=10.0 / 14, reach=3.0)
    start = born(rng, 60, 14, 1, HUBER)
    assert 0.9 < math.sqrt(climb(rng, start, HUBER, active_share(active, 0.0), 60)) <= 1.0


# Every term is needed --------------------------------------------------------------------------


def exceeds(release: OneRelease, before: Array, after: Array, grid: float = 0.0) -> bool:
    others, own = moves(before, after, grid)
    return bool(others[0] + own[0] ** 2 > release.square(grid))


def test_the_built_pairs_are_within_the_whole_bounds() -> None:
    pairs = [huber_pair(), logistic_pair(), intercept_pair(), passive_pair(), weak_pair()]
    pairs += [turned_pair(8.0, 2.0), turned_pair(0.5, 2.0)]
    for setting, before, after in pairs:
        assert not exceeds(setting.bounds().release(), before, after)


@pytest.mark.parametrize(
    "change",
    [
        {"smoothness": 0.98},
        {"residual_bound": 0.99 * HUBER.residual_bound},
        {"strength": 1.02 * 10.0 / 61},
        {"rows": 62},
        {"own_release": 1.999 * HUBER.residual_bound, "intercept": False},
    ],
    ids=str,
)
def test_an_active_bound_that_is_a_little_smaller_is_exceeded(change: dict[str, float]) -> None:
    setting, before, after = huber_pair()
    smaller = replace(setting.bounds(), **change).release()
    assert exceeds(smaller, before, after)


def test_active_terms_left_out_are_noticed() -> None:
    setting, before, after = huber_pair()
    release = setting.bounds().release()
    assert exceeds(replace(release, others=0.0), before, after)
    assert exceeds(replace(release, own=release.own / 2), before, after)
    setting, before, after = logistic_pair()
    no_swing = replace(setting.bounds(), own_release=1.0).release()
    assert exceeds(no_swing, before, after)


@pytest.mark.parametrize(
    "change",
    [{"clip_received": 8.0}, {"strength": 0.065}, {"rows": 130}],
    ids=str,
)
def test_a_passive_bound_that_is_smaller_is_exceeded(change: dict[str, float]) -> None:
    setting, before, after = passive_pair()
    smaller = replace(setting.bounds(), **change).release()
    assert exceeds(smaller, before, after)


def test_passive_terms_left_out_are_noticed() -> None:
    setting, before, after = passive_pair()
    bounds = setting.bounds()
    assert exceeds(replace(bounds.release(), others=0.0), before, after)
    without_clip = (bounds.curvature * bounds.weight_norm) ** 2 / (100 * 0.1 * 0.05)
    assert exceeds(replace(bounds.release(), others=without_clip), before, after)
    # kappa k: without it the bound is that of rows whose score is zero.
    setting, before, after = weak_pair()
    without_reach = 1.0 / (2000 * 1.0 * 0.01)
    assert moves(before, after)[0][0] > 5.0 * without_reach
    # Own row: B where it is smaller, k where that is.
    for norm, score_bound in ((8.0, 2.0), (0.5, 2.0)):
        setting, before, after = turned_pair(norm, score_bound)
        release = setting.bounds().release()
        assert exceeds(replace(release, own=release.own * 0.9, others=0.0), before, after)


def test_the_grid_and_the_solver_are_charged() -> None:
    setting, before, after = huber_pair()
    grid = 2.0**-3  # what lies at +-0.0675 goes to +-0.125
    release = setting.bounds().release()
    others, own = moves(before, after, grid)
    assert others[0] + own[0] ** 2 > release.square(0.0)
    assert not exceeds(release, before, after, grid)
    # A solver that is off by its error, in both runs and the worst direction.
    error = 1e-3
    drift = setting.loss.smoothness * error * np.sign(after - before)
    drift[0, 11:] = 0.0
    assert exceeds(release, before - drift, after + drift)
    assert not exceeds(setting.bounds(error).release(), before - drift, after + drift)


def test_limits_left_out_of_a_fit_are_noticed() -> None:
    setting, before, after = logistic_pair(ball=False)
    assert exceeds(setting.bounds().release(), before, after)
    passive, before, after = passive_pair(clip=30.0)
    assert exceeds(passive.bounds().release(), before, after)
    passive, before, after = turned_pair(8.0, 1e9)
    unclipped = replace(passive, score_bound=2.0)
    assert exceeds(replace(unclipped.bounds().release(), others=0.0), before, after)
    free, before, after = intercept_pair(penalise=False)
    assert exceeds(free.bounds().release(), before, after)


# The product's own fits ------------------------------------------------------------------------


@pytest.mark.parametrize("loss", every_loss(), ids=lambda loss: loss.name)
def test_the_product_fits_what_was_attacked(loss: Family) -> None:
    rng = np.random.default_rng(9)
    for _ in range(4):
        active, passive = settings(rng, loss)
        pair = born(rng, 1, active.rows, 2, loss)
        rule = OneRound(
            active_strength_rows=active.strength * active.rows, feature_reach=active.reach
        )
        terms = active_terms(rule, active.rows, loss, intercept=True)
        block = ColumnBlock(with_intercept(pair["X"])[0], intercept=True)
        pair["y"] = np.round(pair["y"]) if loss.label_kind == "count" else pair["y"]
        response = Response(loss, pair["y"][0])
        w = fit_active(
            block,
            response,
            strength=terms.strength,
            feature_norm=terms.feature_norm,
            error=terms.error,
        )
        rows = slice(0, active.rows)
        mine = response.residual(rows, block.scores(rows, w), 0.0).expose()
        theirs = active_release(pair["X"], pair["y"], active)[0]
        assert np.abs(mine - theirs).max() <= loss.smoothness * terms.error + 1e-9
        z = np.clip(pair["received"], -passive.clip, passive.clip)
        v = fit_passive(
            ColumnBlock(pair["X"][0]),
            z[0],
            curvature=passive.curvature,
            strength=passive.strength,
            weight_norm=passive.norm,
        )
        released = np.clip(scores(pair["X"], v[None]), -passive.score_bound, passive.score_bound)
        assert np.abs(released - passive_release(pair["X"], z, passive)).max() < 1e-7
