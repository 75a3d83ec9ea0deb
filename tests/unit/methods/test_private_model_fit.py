"""The parts of the private model: exact sums, plans, weights, expectation and the last fit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.glm.block import ColumnBlock, scale_rows
from hdpvfl_mq.glm.families import FAMILIES, family
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.private_model import bound, statistics
from hdpvfl_mq.methods.private_model.expectation import Shares, expect
from hdpvfl_mq.methods.private_model.last_fit import column_scale, last_fit
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.problem import Labels
from hdpvfl_mq.methods.private_model.weights import (
    ReceivedLabels,
    Statistics,
    private_weights,
    signal_kept,
    signal_kept_of,
)
from hdpvfl_mq.privacy.accountant import affordable
from hdpvfl_mq.privacy.calibration import mu_of
from schemas.methods import PrivateModel
from schemas.model import LossSpec
from schemas.privacy import Budget
from tests.federation import manifest

pytestmark = pytest.mark.seconds

LOGISTIC = family(LossSpec(name="logistic"))


def block(rows: int = 700, columns: int = 4, seed: int = 1) -> ColumnBlock:
    return ColumnBlock(scale_rows(np.random.default_rng(seed).normal(size=(rows, columns))))


def planned(rows: int = 1000, **changes) -> PrivateModelPlan:
    plan = plan_run(manifest(method=PrivateModel(**changes)), rows)
    assert isinstance(plan, PrivateModelPlan)
    return plan


def test_sums_are_exact_to_the_grid():
    X, z = block(), statistics.clipped(np.random.default_rng(2).normal(size=700) * 9.0, 4.5)
    whole = statistics.row_integers(X.dense(slice(0, 700)))
    for exponent in (-9, -22, -45):
        made = statistics.moments(X, z, clip=4.5, exponent=exponent).expose()
        for column in range(4):
            pairs = zip(whole[:, column].tolist(), z.tolist(), strict=True)
            exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
            apart = Fraction(float(made[column])) - exact / 2**20 / 700
            assert abs(apart) <= Fraction(2) ** (exponent - 1)
    packed = statistics.gram(X, 700, exponent=-30).expose()
    G = statistics.unpacked(packed)
    assert np.allclose(G, whole.T @ whole * 2.0**-40 / 700, atol=2.0**-30)
    assert np.array_equal(G, G.T)


def test_sums_do_not_depend_on_the_order_of_rows():
    X, z = block(), statistics.clipped(np.random.default_rng(2).normal(size=700), 2.0)
    other = np.random.default_rng(5).permutation(700)
    moved = ColumnBlock(X.dense(slice(0, 700))[other])
    a = statistics.moments(X, z, clip=2.0, exponent=-40).expose()
    assert np.array_equal(a, statistics.moments(moved, z[other], clip=2.0, exponent=-40).expose())
    a = statistics.gram(X, 700, exponent=-50).expose()
    assert np.array_equal(a, statistics.gram(moved, 700, exponent=-50).expose())


def test_the_sum_of_squares_of_many_rows_is_wider_than_64_bits() -> None:
    """2^23 rows of one add up to 2^63 units of 2^-40: as int64 the sum would be negative."""
    rows = 2**23 + 8
    ones = ColumnBlock(np.ones((rows, 1), dtype=np.float32))
    assert statistics.gram(ones, rows, exponent=-30).expose().tolist() == [1.0]
    z = np.full(rows, 0.5)
    assert statistics.moments(ones, z, clip=1.0, exponent=-30).expose().tolist() == [0.5]


def test_sums_do_not_depend_on_how_many_rows_fit_a_cache(monkeypatch):
    X, z = block(), statistics.clipped(np.random.default_rng(2).normal(size=700), 2.0)
    w = statistics.weight_grid(np.random.default_rng(3).normal(size=X.columns))

    def found():
        scores = statistics.scores(X, slice(0, 700), w)
        moments = statistics.moments(X, z, clip=2.0, exponent=-40).expose()
        return scores, moments, statistics.gram(X, 700, exponent=-40).expose()

    before = found()
    monkeypatch.setattr(statistics, "_CACHED_NUMBERS", 3 * X.columns)
    assert all(np.array_equal(a, b) for a, b in zip(before, found(), strict=True))


@pytest.mark.parametrize("rows", [0, 1, 8192, 8193, 300_000, 1_000_000, 10**9 // 7])
def test_workers_get_equal_shares_that_add_up_below_64_bits(rows: int):
    parts = statistics._shares(rows, 8192)
    assert [0, *(part.stop for part in parts)] == [*(part.start for part in parts), rows]
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes, default=0) <= 8 * 8192
    assert len(set(sizes[:-1])) <= 1
    if rows > 32 * 8192:
        assert len(parts) % 32 == 0
        assert sizes[-1] > 0.9 * sizes[0]


def test_integer_rows_never_leave_the_unit_ball():
    X = scale_rows(np.random.default_rng(4).normal(size=(5000, 7)) * 10.0)
    whole = statistics.row_integers(X)
    assert np.square(whole).sum(axis=1).max() <= 2.0**40


def test_rows_on_the_sphere_keep_their_length():
    """Rounded to the nearest, half of them would be too long and count as zero."""
    X = np.random.default_rng(8).normal(size=(200, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    whole = statistics.row_integers(X) * 2.0**-20
    assert (np.linalg.norm(whole, axis=1) > 1.0 - 1e-5).all()


def test_z_is_centred_then_clipped():
    z = statistics.clipped(np.array([100.0, 0.0, 0.0, 0.0]), 3.0)
    assert z.tolist() == [3.0, -3.0, -3.0, -3.0]


def test_scores_of_gridded_weights_are_exact():
    X, w = block(), statistics.weight_grid(np.array([0.3, -1.7, 2.0, 5.1]))
    whole = statistics.row_integers(X.dense(slice(0, 700)))
    assert np.array_equal(statistics.scores(X, slice(0, 700), w), (whole * 2.0**-20) @ w)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_a_party_stays_within_its_budget_and_uses_it(epsilon, delta):
    budget = Budget(epsilon=epsilon, delta=delta)
    plan = plan_run(manifest(method=PrivateModel(), budget=budget), 5000)
    for role in ("active", "passive"):
        spent = plan.spent_by(role)
        assert affordable(budget, spent.mu2_units, spent.tau_units)
        assert math.sqrt(spent.mu2_units * 2.0**-40) > 0.999 * mu_of(epsilon, delta)


def test_bounds_by_hand():
    plan = planned(columns_max=16)
    noise = plan.inner_noise
    assert noise["moments"].sensitivity == pytest.approx(
        2 * plan.clip / 1000 + 4 * 2.0 ** noise["moments"].exponent
    )
    assert noise["gram"].sensitivity == pytest.approx(
        math.sqrt(2) / 1000 + 16 * 2.0 ** noise["gram"].exponent
    )
    assert noise["gram"].sensitivity <= 1.01 * bound.gram_move(1000)
    assert plan.passive_noise.sensitivity == pytest.approx(2 * plan.score_bound)


def test_disclosed_scores_cost_nothing_and_leave_all_to_the_statistics():
    noised, disclosed = planned(), planned(disclosed_rows=50, held_out_rows=100)
    assert disclosed.passive_noise.spent.mu2_units == 0
    assert disclosed.is_sealed
    assert disclosed.share_count(0) == 150
    assert disclosed.residual_count(0) == 900
    assert disclosed.inner_noise["moments"].mu > 2 * noised.inner_noise["moments"].mu


def test_too_few_rows_are_refused():
    with pytest.raises(RefusedError):
        planned(rows=50, held_out_rows=45)


def made(rows: int, *, seed: int = 0, strength: float = 1.0):
    """Own columns, a partner's exact scores, labels of both."""
    dice = np.random.default_rng(seed)
    A = np.hstack([dice.normal(size=(rows, 3)) * 7.0, np.ones((rows, 1))])
    s = 0.5 * dice.normal(size=rows) + 0.02 * A[:, 0]
    y = (dice.random(rows) < 1 / (1 + np.exp(-0.1 * A[:, 0] - strength * s * 3))).astype(float)
    return A, s, y


def scaled(A):
    return A / np.sqrt(np.mean(A**2, axis=0))


@pytest.mark.parametrize("noise_std", [0.0, 2.0])
def test_the_last_fit_learns_a_coefficient_from_noised_scores(noise_std):
    A, s, y = made(20_000)
    values = (s + noise_std * np.random.default_rng(9).normal(size=len(s)))[:, None]
    shares = Shares(values=values, noise_std=np.array([noise_std]), size=np.array([s.std()]))
    fit = last_fit(A, Labels(family=LOGISTIC, y=y), expect(scaled(A), shares))
    assert fit.is_joint
    # The truth is 3; the prior says 1 with a deviation of 0.34.
    assert fit.coefficients[0] > (2.5 if noise_std == 0.0 else 1.1)
    assert 0.0 < fit.coefficient_std[0] < 0.4


def test_scores_that_speak_against_the_labels_are_left_out():
    A, s, y = made(20_000, strength=-1.0)
    shares = Shares(values=s[:, None], noise_std=np.array([0.0]), size=np.array([s.std()]))
    worse = last_fit(
        A[:1900],
        Labels(family=LOGISTIC, y=y[:1900]),
        expect(
            scaled(A[:1900]), Shares(values=s[:1900, None], noise_std=np.zeros(1), size=shares.size)
        ),
    )
    assert not worse.is_joint
    assert worse.coefficients.tolist() == [0.0]
    assert worse.gain < 0.0


def test_scores_that_noise_must_have_drowned_have_to_prove_themselves():
    """The same tie favours partners if a plan forecasts signal, and the own columns if not."""
    A, s, y = made(4_000)
    values = (s + 20.0 * np.random.default_rng(2).normal(size=len(s)))[:, None]
    shares = Shares(values=values, noise_std=np.array([20.0]), size=np.array([s.std()]))
    labels, expected = Labels(family=LOGISTIC, y=y), expect(scaled(A), shares)
    hopeful = last_fit(A, labels, expected, forecast=0.5)
    sceptical = last_fit(A, labels, expected, forecast=0.01)
    assert abs(hopeful.gain) < hopeful.gain_std
    assert hopeful.is_joint
    assert not sceptical.is_joint


def test_exact_scores_of_few_rows_are_enough():
    A, s, y = made(20_000)
    shares = Shares(values=s[:300, None], noise_std=np.zeros(1), size=np.array([s.std()]))
    fit = last_fit(A, Labels(family=LOGISTIC, y=y), expect(scaled(A), shares))
    assert fit.is_joint
    assert fit.gain > 0.0


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "gamma_canonical"])
def test_every_loss_learns_weights_and_coefficients(name):
    """Through the same functions as the roles, without noise: scores point to the label."""
    loss, dice = family(LossSpec(name=name)), np.random.default_rng(3)
    X = scale_rows(dice.normal(size=(4000, 3)))
    theta = X @ np.array([1.0, -0.7, 0.3])
    mean = loss.mean(theta)
    y = {
        "binary": lambda: (dice.random(4000) < mean).astype(float),
        "count": lambda: dice.poisson(mean).astype(float),
        "positive": lambda: dice.gamma(4.0, mean / 4.0),
        "real": lambda: theta + 0.5 * dice.normal(size=4000),
    }[loss.label_kind]()
    low, high = loss.mean_range
    received = ((low + high) / 2 - np.clip(y, low, high)) / ((high - low) / 2)
    columns = ColumnBlock(X)
    z = statistics.clipped(received, 2.0)
    found = private_weights(
        Statistics(
            moments=statistics.moments(columns, z, clip=2.0, exponent=-40).expose(),
            moments_std=1e-6,
            gram=statistics.unpacked(statistics.gram(columns, 4000, exponent=-40).expose()),
            gram_std=1e-6,
        ),
        ReceivedLabels.of(loss, received, z, 0.0),
        signal_share=0.09,
        variance_max=0.5,
        weight_norm=16.0,
    )
    s = X @ found.w
    assert np.corrcoef(s, theta)[0, 1] > 0.97
    A = np.ones((4000, 1))
    shares = Shares(values=s[:, None], noise_std=np.zeros(1), size=np.array([found.size]))
    fit = last_fit(A, Labels(family=loss, y=y), expect(A, shares))
    assert fit.is_joint
    assert fit.gain > 3 * fit.gain_std


def test_rare_labels_leave_less_signal_than_a_plan_forecasts():
    """Bug: with 5 % of one class, training could not see partners that it had every odds for."""
    plan = planned(rows=8000)
    even, rare = np.arange(8000) % 2, np.arange(8000) % 20 == 0
    assert signal_kept_of(plan, even.astype(float)) == pytest.approx(signal_kept(plan), rel=1e-6)
    assert signal_kept_of(plan, rare.astype(float)) < signal_kept(plan) / 3.0


def test_the_forecast_of_other_labels_follows_their_spread():
    loss = LossSpec(name="poisson", label_low=0.0, label_high=10.0)
    made = manifest(method=PrivateModel(), loss=loss)
    plan = plan_run(made, 2000)
    dice = np.random.default_rng(1)
    few, many = dice.poisson(0.3, size=2000), dice.poisson(4.0, size=2000)
    assert signal_kept_of(plan, few.astype(float)) < signal_kept_of(plan, many.astype(float))


def test_categories_keep_their_unit_and_numbers_are_scaled():
    A = np.column_stack([np.arange(100.0), np.arange(100) % 50 == 0, np.zeros(100), np.ones(100)])
    scale = column_scale(A)
    assert scale[0] == pytest.approx(np.sqrt(np.mean(A[:, 0] ** 2)))
    assert np.array_equal(scale[1:], np.ones(3))


def test_a_rare_category_does_not_follow_its_few_rows():
    """Bug: scaled to a mean square of 1, six rows of 2,000 had the weight of a whole column."""
    dice = np.random.default_rng(4)
    rare = np.arange(2000) < 6
    A = np.column_stack([dice.normal(size=2000), rare, np.ones(2000)])
    y = np.where(rare, 1.0, dice.random(2000) < 0.3).astype(float)
    fit = last_fit(A, Labels(family=LOGISTIC, y=y), None)
    assert 0.5 < fit.w[1] < 3.5
