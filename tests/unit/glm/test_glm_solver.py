"""Newton's method against scipy, for every loss, and where it could fail."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import FAMILIES, family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import Objective, newton
from schemas.model import LossName, LossSpec
from tests.lazily import Lazily

optimize = Lazily("scipy.optimize")


NAMES = [name for name in FAMILIES if name != "gamma_canonical"]
ROWS = 300


def objective(name: LossName, *, clip: float | None = None, strength: float = 0.02) -> Objective:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(ROWS, 3))
    signal = X @ [1.5, -1.0, 0.0] + 0.3
    y = {
        "binary": np.where(signal + rng.logistic(size=ROWS) > 0, 1.0, 0.0),
        "real": signal + rng.normal(size=ROWS),
        "count": rng.poisson(np.exp(np.clip(signal / 2, -3, 2))).astype(float),
        "positive": np.exp(signal / 2) * rng.gamma(2.0, 0.5, size=ROWS) + 1e-3,
    }
    loss = family(LossSpec(name=name, residual_clip=clip))
    block = ColumnBlock.align(X, np.arange(ROWS), intercept=True)
    response = Response(loss, y[loss.label_kind])
    return Objective(block=block, response=response, strengths=np.full(4, strength))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_gradient_vanishes_for_every_loss(name: LossName, clip: float | None) -> None:
    target = objective(name, clip=clip)
    w = newton(target, tolerance=1e-10)
    assert np.linalg.norm(target.gradient(w)) <= 1e-10


@pytest.mark.parametrize("name", ["logistic", "normal", "poisson", "gamma", "bernoulli"])
def test_it_is_what_scipy_finds(name: LossName) -> None:
    target = objective(name, clip=1e6)
    rows = target.rows

    def value(w: np.ndarray) -> float:
        losses = target.response.loss(rows, target.block.scores(rows, w), 0.0).expose()
        return float(losses.mean() + 0.02 * w @ w / 2)

    found = optimize.minimize(value, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    w = newton(target, tolerance=1e-11)
    assert np.allclose(w, found.x, atol=1e-4)
    assert value(w) <= found.fun + 1e-12


def test_one_label_and_no_features_are_no_special_case() -> None:
    loss = family(LossSpec(name="logistic"))
    block = ColumnBlock.align(np.zeros((50, 2)), np.arange(50), intercept=True)
    response = Response(loss, np.ones(50))
    target = Objective(block=block, response=response, strengths=np.full(3, 0.2))
    w = newton(target, tolerance=1e-10)
    assert np.allclose(w[:2], 0.0)
    theta = w[2] / math.sqrt(2.0)
    assert 0.2 * w[2] == pytest.approx(1 / (1 + math.exp(theta)) / math.sqrt(2.0), rel=1e-6)


def test_the_same_label_everywhere_and_hardly_a_penalty_end() -> None:
    block = ColumnBlock.align(np.zeros((50, 2)), np.arange(50), intercept=True)
    response = Response(family(LossSpec(name="logistic")), np.ones(50))
    w = newton(
        Objective(block=block, response=response, strengths=np.full(3, 1e-12)), tolerance=1e-9
    )
    assert np.isfinite(w).all()
    assert w[-1] > 5.0


def test_a_direction_without_curvature_or_penalty_ends() -> None:
    """Two equal columns and no ridge: a stop here would tell something about rows."""
    x = np.random.default_rng(1).normal(size=(60, 1))
    block = ColumnBlock.align(np.hstack([x, x]), np.arange(60), intercept=True)
    response = Response(family(LossSpec(name="logistic")), (x[:, 0] > 0.3).astype(float))
    w = newton(Objective(block=block, response=response, strengths=np.zeros(3)), tolerance=1e-9)
    assert np.isfinite(w).all()
