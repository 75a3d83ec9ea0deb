"""The plan that the second verifier derives alone is the library's, in every integer and bit."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import get_args

import gmpy2
import pytest

from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy import accountant
from hdpvfl_mq.privacy.noise import ladder
from hdpvfl_mq.privacy.pure import delta_with_pure, mu_beside
from hdpvfl_mq.wire.codec import model_digest
from schemas.methods import (
    ActiveSide,
    Descent,
    PassiveSide,
    Prediction,
    PrivateModel,
    Scoring,
)
from schemas.model import LossName, LossSpec, PenaltySpec
from schemas.privacy import Budget
from scripts.verify_journal import curves
from scripts.verify_journal.noise import tau_of
from scripts.verify_journal.prices import plan_of
from tests.federation import manifest

pytestmark = pytest.mark.seconds

LOSSES: tuple[LossName, ...] = get_args(LossName)
RUNS = 18


def _loss(dice: random.Random) -> LossSpec:
    fields: dict[str, object] = {"name": dice.choice(LOSSES)}
    if dice.random() < 0.3:
        fields["residual_clip"] = dice.uniform(0.1, 5.0)
    if dice.random() < 0.2:
        fields |= {"weight_max": dice.uniform(0.1, 3.0), "offset_max": dice.uniform(0.0, 3.0)}
    if fields["name"] in ("gamma", "gamma_canonical", "normal") and dice.random() < 0.4:
        fields["dispersion"] = dice.uniform(0.3, 3.0)
    if dice.random() < 0.2:
        fields["label_high"] = dice.uniform(1.5, 1e4)  # rounding errors then count
    return LossSpec(**fields)


def _descent(dice: random.Random, rows: int) -> dict[str, object]:
    method = Descent(
        epochs=dice.randrange(1, 9),
        batch_rows=dice.choice([rows, rows // 3, rows // 15 + 1]),
        step_decay=dice.choice([0.0, 0.1, dice.random()]),
        active=ActiveSide(
            step_size=dice.choice([0.1, 7.9, dice.random()]),
            weight_norm=dice.uniform(0.1, 10.0),
            local_steps=dice.randrange(1, 4),
        ),
        passive=PassiveSide(
            step_size=dice.choice([0.1, 20.0]),
            weight_norm=dice.uniform(0.1, 10.0),
            received_clip=dice.choice([1.0, dice.uniform(0.1, 2.0)]),
        ),
    )
    strength = dice.choice([0.0, 1e-4, 0.1, 1.0])
    penalty = PenaltySpec(
        name=dice.choice(["none", "l2", "l1", "elastic_net"]), strength=strength, mixing=0.7
    )
    return {
        "method": method,
        "penalty": penalty,
        "guarantee": dice.choice(["sound", "sound", "paper"]),
        "intercept": dice.random() < 0.6,
        "absence": dice.choice(["wait", "last", "nothing"]),
    }


def _private(dice: random.Random) -> PrivateModel:
    return PrivateModel(
        columns_max=dice.choice([1, 8, 100, 1024]),
        noise=dice.choice(["gaussian", "bounded"]),
        received_clip=dice.random() * 3.0,
        moments_share=dice.uniform(0.01, 0.4),
        gram_share=dice.uniform(0.01, 0.4),
        score_bound=dice.uniform(0.25, 8.0),
        pure_share=dice.uniform(0.05, 0.95),
        disclosed_rows=dice.choice([0, 0, 10, 5000]),
        held_out_rows=dice.choice([0, 0, 3]),
    )


def drawn(seed: int):
    """Any manifest and row count."""
    dice = random.Random(seed)
    rows = dice.choice([9, 44, 455, dice.randrange(10, 3000)])
    epsilon = dice.choice([0.1, 1.0, 10.0, dice.uniform(0.01, 60.0)])
    delta = dice.choice([0.01, 1e-5, dice.uniform(1e-9, 0.3)])
    fields: dict[str, object] = {
        "loss": _loss(dice),
        "budget": Budget(epsilon=epsilon, delta=delta),
    }
    norm = dice.uniform(0.1, 20.0)
    match seed % 6:
        case 0 | 1 | 2:
            fields |= _descent(dice, rows)
        case 3:
            fields["method"] = _private(dice)
        case 4:
            distance = dice.choice([0.0, 2.0 * norm, 0.3 * norm])
            fields["method"] = Prediction(model_run="m", weight_norm=norm, distance=distance)
        case _:
            fields["method"] = Scoring(model_run="m", scores="noised", score_bound=norm / 3 + 0.25)
    return manifest(**fields), rows


def same_plan(run, rows: int) -> bool:
    """Compare the two plans; False if both refuse."""
    try:
        ours = plan_run(run, rows)
    except HdpvflError:
        with pytest.raises(ValueError, match=r"."):
            plan_of(run.model_dump(), rows)
        return False
    theirs = plan_of(run.model_dump(), rows)
    assert theirs.digest(model_digest(run)) == ours.digest
    sides = {"active": ours.active_noise, "passive": ours.passive_noise, **ours.inner_noise}
    found = {"active": theirs.active, "passive": theirs.passive, **theirs.inner}
    assert sides.keys() == found.keys()
    for name, noise in sides.items():
        other = found[name]
        assert (other.mechanism, other.disclosed) == (noise.mechanism, noise.disclosed_rows)
        assert (other.mu2, other.tau) == (noise.mu2_cumulative, noise.tau_cumulative), name
    for role in ("active", "passive"):
        spent = ours.spent_by(role)
        assert theirs.cost(role) == (spent.mu2_units, spent.tau_units, spent.pure)
    return True


def test_every_plan_is_the_same():
    assert sum(same_plan(*drawn(seed)) for seed in range(RUNS)) > RUNS // 2


@pytest.mark.slow  # make soak
@pytest.mark.parametrize("block", range(20))
def test_2000_plans_are_the_same(block):
    for seed in range(RUNS + block * 100, RUNS + (block + 1) * 100):
        same_plan(*drawn(seed))


def test_plans_without_noise_are_the_same():
    assert same_plan(manifest(guarantee="none", budget=None), 120)
    exact = Prediction(model_run="m", weight_norm=2.0, distance=1.0)
    assert same_plan(manifest(guarantee="none", budget=None, method=exact), 44)
    assert same_plan(manifest(budget=None, method=Scoring(model_run="m")), 44)


@pytest.mark.parametrize("rows", [0, 1, 10**9])
def test_row_counts_that_a_liar_may_report_are_judged_alike(rows):
    same_plan(manifest(batch_rows=20), rows)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 13.7, 511.0, 513.0, 40000.0, 2.0**30, 2.0**44])
def test_the_samplers_distance_is_the_same(ratio):
    assert tau_of(ratio) == ladder(ratio).tau_units


@pytest.mark.parametrize(
    ("epsilon", "delta", "pure"),
    [
        (12.0, 1e-6, ()),
        (900.0, 0.01, (2**40,)),
        (10.0, 1e-12, (2**39, 2**39, 2**41)),
        pytest.param(10.0, 1e-6, tuple(range(2**38, 2**38 + 9)), marks=pytest.mark.slow),  # merged
    ],
)
def test_the_curve_is_the_same(epsilon, delta, pure):
    mu = mu_beside(epsilon, delta, pure)
    assert curves.mu_beside(epsilon, delta, pure) == mu
    there = curves.precise(curves.delta_of)(Decimal(epsilon), Decimal(mu), pure)
    with gmpy2.context(precision=192):
        here = gmpy2.mpfr(str(there))
        assert abs(here / delta_with_pure(epsilon, mu, pure) - 1) < 1e-40


def test_a_cap_is_exceeded_at_the_same_unit():
    """Also where the sampler's distance takes its part, and at an epsilon that it makes useless."""
    for epsilon, delta, tau in ((1.0, 0.01, 0), (1.0, 0.01, 2**120), (70.0, 1e-5, 2**40)):
        budget = Budget(epsilon=epsilon, delta=delta)
        mu = mu_beside(min(epsilon, 30.0), delta, ())
        about = math.floor(mu * mu * 2.0**40)
        for units in (about // 2, about - 1, about, about + 1, about + 2, 3 * about):
            ours = accountant.affordable(budget, units, tau)
            assert curves.affordable(epsilon, delta, units, tau, ()) == ours
