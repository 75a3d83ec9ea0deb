"""The recommended descent without privacy reaches the central fit, however labels are scaled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arithmetic import Problem, train

from hdpvfl_mq.app.demo.evaluate import reference_theta
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import family, unclipped
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.schedule import Schedule, StepSize
from hdpvfl_mq.methods.recommend import recommend
from schemas.methods import Descent
from schemas.model import LABEL_MAX, LossSpec
from schemas.privacy import Budget

pytestmark = pytest.mark.seconds

ROWS = 400
BUDGET = Budget(epsilon=1.0, delta=0.01)


def columns(passives: int, dice: np.random.Generator) -> list[np.ndarray]:
    """Columns that have something in common, as those of companies do."""
    common = dice.normal(size=(ROWS, 1))
    return [0.5 * dice.normal(size=(ROWS, 3)) + common for _ in range(1 + passives)]


def reached(loss: LossSpec, mean: np.ndarray, parts: list[np.ndarray]) -> tuple[float, float]:
    """d2 of the recommended run, and of the reference with all columns in one place."""
    dice = np.random.default_rng(3)
    y = dice.poisson(mean).astype(float) if loss.name == "poisson" else dice.gamma(2.0, mean / 2.0)
    names = tuple(f"p{n}" for n in range(len(parts) - 1))
    manifest = recommend("run", ("active", names), "none", BUDGET, loss)
    method, order = manifest.method, np.arange(ROWS)
    assert isinstance(method, Descent)
    assert method.active.step_size == method.passive.step_size
    blocks = [ColumnBlock.align(X, order, intercept=n == 0) for n, X in enumerate(parts)]
    plain = family(manifest.loss)
    problem = Problem(blocks, Response(plain, y), manifest.penalty)
    schedule = Schedule(ROWS, method.batch_rows, method.epochs)
    weights, _ = train(problem, schedule, StepSize(method.active.step_size))
    rows = slice(0, ROWS)
    shares = [b.scores(rows, w).expose() for b, w in zip(blocks, weights, strict=True)]
    X = np.hstack([b._X[:, : b.columns - b.intercept] for b in blocks])
    central = reference_theta(plain, X, y, X)
    return quality(plain, np.sum(shares, axis=0), y)["d2"], quality(plain, central, y)["d2"]


@pytest.mark.parametrize("passives", [1, 6])
@pytest.mark.parametrize(
    ("mean", "loss"),
    [
        (0.3, LossSpec(name="poisson", label_high=9.0)),
        (3.0, LossSpec(name="poisson", label_high=9.0)),
        (30.0, LossSpec(name="poisson", label_high=100.0)),
        (1.0, LossSpec(name="gamma")),
        (30.0, LossSpec(name="gamma", label_low=0.3, label_high=300.0)),
        (1e5, LossSpec(name="gamma", label_low=1e3, label_high=1e6)),
    ],
    ids=lambda value: value.name if isinstance(value, LossSpec) else f"{value:g}",
)
def test_counts_and_positive_labels_are_learnt(mean, loss, passives):
    """Bug: 200 epochs of short steps ended far from the fit, and unscaled amounts diverged."""
    dice = np.random.default_rng(7)
    parts = columns(passives, dice)
    scores = sum(X @ dice.normal(size=3) for X in parts)
    scores = 0.6 * scores / scores.std()
    joint, central = reached(loss, mean * np.exp(scores - scores.mean()), parts)
    assert central > 0.05
    assert joint > 0.95 * central


def test_without_clipping_descent_starts_where_the_declared_range_says():
    for low, high in ((0.01, 10.0), (1e2, 1e6), (1e-8, 1e-3)):
        for name, start in (("gamma", high), ("gamma_canonical", math.sqrt(low * high))):
            wide = unclipped(LossSpec(name=name, label_low=low, label_high=high))
            assert 0.3 * start <= family(wide).label_middle <= 1.001 * start
            assert wide.label_low is not None
            assert wide.label_low <= low
            assert wide.label_high == LABEL_MAX
