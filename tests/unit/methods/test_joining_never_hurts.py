"""Partners whose columns say nothing of the label cost the active party no more than chance.

Statistics, weights, scores and the last fit are those of the roles; noise is drawn here with the
deviations of the plan. A prediction then has exact scores, as after a training.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from hdpvfl_mq.glm.block import ColumnBlock, scale_rows
from hdpvfl_mq.glm.families import Family, family, unclipped
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.private_model import statistics
from hdpvfl_mq.methods.private_model.expectation import Shares, expect
from hdpvfl_mq.methods.private_model.last_fit import last_fit
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.problem import Labels
from hdpvfl_mq.methods.private_model.weights import (
    ReceivedLabels,
    Statistics,
    private_weights,
    signal_kept_of,
)
from hdpvfl_mq.methods.recommend import recommend
from schemas.model import LossSpec
from schemas.privacy import Budget

pytestmark = pytest.mark.seconds

TESTED, SEEDS = 4000, range(8)


class Case(NamedTuple):
    loss: str = "logistic"
    rows: int = 2500
    partners: int = 3
    epsilon: float = 0.1
    intercept: float = 0.0


CASES = {
    "epsilon 0.1": Case(),
    "epsilon 1": Case(epsilon=1.0),
    "one label in forty": Case(epsilon=1.0, intercept=-4.0),
    "few rows": Case(rows=200, epsilon=1.0),
    "fifty partners": Case(partners=50, epsilon=1.0),
    **{loss: Case(loss, epsilon=1.0) for loss in ("least_squares", "huber", "squared_hinge")},
    **{loss: Case(loss, epsilon=1.0) for loss in ("poisson", "gamma", "normal", "bernoulli")},
}


def labelled(loss: Family, theta: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    mean = loss.mean(theta)
    return {
        "binary": lambda: (dice.random(len(theta)) < mean).astype(float),
        "count": lambda: dice.poisson(mean).astype(float),
        "positive": lambda: dice.gamma(4.0, mean / 4.0),
        "real": lambda: theta + dice.normal(size=len(theta)),
    }[loss.label_kind]()


def weights_of(plan: PrivateModelPlan, X: np.ndarray, received: np.ndarray, dice):
    """A passive party's private weights, from statistics with the plan's noise."""
    noise, d = plan.inner_noise, X.shape[1]
    z, u_noise, g_noise = statistics.clipped(received, plan.clip), noise["moments"], noise["gram"]
    u = statistics.moments(ColumnBlock(X), z, clip=plan.clip, exponent=u_noise.exponent).expose()
    G = statistics.gram(ColumnBlock(X), len(X), exponent=g_noise.exponent).expose()
    wide = np.where(np.arange(len(G)) < d, 1.0, np.sqrt(0.5)) * g_noise.noise_std
    return private_weights(
        Statistics(
            moments=u + u_noise.noise_std * dice.normal(size=d),
            moments_std=u_noise.noise_std,
            gram=statistics.unpacked(G + wide * dice.normal(size=len(G))),
            gram_std=g_noise.noise_std,
        ),
        ReceivedLabels.of(plan.family, received, z, plan.active_noise.noise_std),
        signal_share=plan.method.signal_share,
        variance_max=plan.method.weight_variance_max,
        weight_norm=plan.method.weight_norm,
    )


def harm(case: Case, seed: int) -> float:
    """How much partners raise the mean loss on new rows, as a share of the loss alone."""
    dice, n = np.random.default_rng(seed), case.rows
    spec = LossSpec(name=case.loss)
    names = ("a", tuple(f"p{number}" for number in range(case.partners)))
    budget = Budget(epsilon=case.epsilon, delta=1e-2)
    plan = plan_run(recommend("never-hurts", names, "sound", budget, spec), n)
    assert isinstance(plan, PrivateModelPlan)
    loss = family(unclipped(spec))
    A = np.hstack([dice.normal(size=(n + TESTED, 3)), np.ones((n + TESTED, 1))])
    y = labelled(loss, A @ np.array([0.7, -0.3, 0.2, case.intercept]), dice)
    low, high = plan.family.mean_range
    noised = ((low + high) / 2 - np.clip(y[:n], low, high)) / ((high - low) / 2)
    noised = noised + plan.active_noise.noise_std * dice.normal(size=n)
    exact, values, sizes = [], [], []
    for _ in range(case.partners):
        X = scale_rows(dice.normal(size=(n + TESTED, 2)))
        found = weights_of(plan, X[:n], noised, dice)
        exact.append(X @ found.w)
        clipped = np.clip(exact[-1][:n] / found.size, -plan.score_bound, plan.score_bound)
        clipped += plan.passive_noise.noise_std * dice.normal(size=n)
        values.append(clipped * found.size)
        sizes.append(found.size)
    size = np.array(sizes)
    shares = Shares(
        values=np.column_stack(values), noise_std=plan.passive_noise.noise_std * size, size=size
    )
    learnt = A[:n] / np.sqrt(np.mean(A[:n] ** 2, axis=0))
    labels, expected = Labels(family=loss, y=y[:n]), expect(learnt, shares)
    joint = last_fit(A[:n], labels, expected, forecast=signal_kept_of(plan, y[:n]))
    alone = last_fit(A[:n], labels, None)
    theta = A[n:] @ joint.w + np.column_stack(exact)[n:] @ joint.coefficients
    coded = loss.coded(y[n:])
    before = float(loss.loss(A[n:] @ alone.w, coded).mean())
    return (float(loss.loss(theta, coded).mean()) - before) / abs(before)


# These two have the derivatives of another loss up to a factor, so they are for make test-slow.
ALIKE = {"normal", "bernoulli"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in CASES]
)
def test_partners_who_know_nothing_cost_no_more_than_chance(name):
    found = np.array([harm(CASES[name], seed) for seed in SEEDS])
    # Noise hides from training that they know nothing, so the mean is not zero. A rule by standard
    # errors of the gain costs 0.08 with fifty partners and 0.04 for Poisson.
    assert found.mean() < 0.045
    assert np.median(found) < 0.02
