"""The two fits of the one-round method against scipy, their certificate, and the public rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm import solver
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import FAMILIES, Family, family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import Objective, accelerated, newton, quadratic_over_ball
from hdpvfl_mq.methods.one_round.fit import fit_active, fit_passive
from hdpvfl_mq.methods.one_round.rule import active_terms, all_terms, recommended
from schemas.methods import OneRound
from schemas.model import LossName, LossSpec

NAMES = [name for name in FAMILIES if name != "gamma_canonical"]
ROWS = 300


def problem(name: LossName, *, clip: float | None = None) -> tuple[ColumnBlock, Response]:
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
    return block, Response(loss, y[loss.label_kind])


def objective(name: LossName, radius: float, strength: float, clip: float | None) -> Objective:
    block, response = problem(name, clip=clip)
    return Objective(block=block, response=response, strengths=np.full(4, strength), radius=radius)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("radius", [0.4, 50.0])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_newton_and_the_slow_method_agree(name: LossName, radius: float, clip: float) -> None:
    target = objective(name, radius, 0.02, clip)
    w, certified = newton(target, tolerance=1e-10)
    assert certified
    slow = accelerated(target, tolerance=1e-10)
    assert np.linalg.norm(w - slow) <= 2 * 1e-10 / 0.02
    assert np.linalg.norm(w[:-1]) <= radius * (1 + 1e-12)


@pytest.mark.parametrize("name", ["logistic", "normal", "poisson", "gamma", "bernoulli"])
def test_the_active_fit_is_what_scipy_finds(name: LossName) -> None:
    block, response = problem(name, clip=1e6)
    rows = slice(0, ROWS)

    def value(w: np.ndarray) -> float:
        losses = response.loss(rows, block.scores(rows, w), 0.0).expose()
        return float(losses.mean() + 0.02 * w @ w / 2)

    ball = {"type": "ineq", "fun": lambda w: 0.8**2 - w[:-1] @ w[:-1]}
    options = {"ftol": 1e-14, "maxiter": 1000}
    found = minimize(value, np.zeros(4), method="SLSQP", constraints=[ball], options=options)
    w = fit_active(block, response, strength=0.02, feature_norm=0.8, error=1e-8)
    assert np.allclose(w, found.x, atol=1e-4)
    assert value(w) <= found.fun + 1e-12
    assert np.linalg.norm(w[:-1]) == pytest.approx(0.8)


def test_a_fit_that_newton_leaves_open_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    block, response = problem("huber")
    terms = {"strength": 0.02, "feature_norm": 0.8, "error": 1e-7}
    w = fit_active(block, response, **terms)
    monkeypatch.setattr(solver, "NEWTON_STEPS", 1)
    assert np.linalg.norm(fit_active(block, response, **terms) - w) <= 2e-7


@pytest.mark.parametrize("radius", [0.4, 50.0])
def test_the_certificate_bounds_the_distance(radius: float) -> None:
    target = objective("squared_hinge", radius, 0.05, None)
    exact, _ = newton(target, tolerance=1e-14)
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-3, 0.3):
        w = target.project(exact + size * rng.normal(size=4))
        distance = np.linalg.norm(w - exact)
        assert distance <= target.certificate(w, target.gradient(w)) / 0.05 * (1 + 1e-6)


def test_one_label_and_no_features_are_no_special_case() -> None:
    loss = family(LossSpec(name="logistic"))
    block = ColumnBlock.align(np.zeros((50, 2)), np.arange(50), intercept=True)
    w = fit_active(block, Response(loss, np.ones(50)), strength=0.2, feature_norm=0.7, error=1e-8)
    assert np.allclose(w[:2], 0.0)
    theta = w[2] / math.sqrt(2.0)
    assert 0.2 * w[2] == pytest.approx(1 / (1 + math.exp(theta)) / math.sqrt(2.0), rel=1e-6)


def test_the_passive_fit_meets_its_optimality_conditions() -> None:
    rng = np.random.default_rng(2)
    block = ColumnBlock.align(rng.normal(size=(500, 6)), np.arange(500))
    z = rng.normal(size=500)
    H, pull = block.gram(slice(0, 500)), block.gradient(slice(0, 500), z)
    free = fit_passive(block, z, curvature=0.3, strength=0.01, weight_norm=50.0)
    assert np.allclose((0.3 * H + 0.01 * np.eye(6)) @ free, -pull, atol=1e-12)
    bound = fit_passive(block, z, curvature=0.3, strength=0.01, weight_norm=0.1)
    assert np.linalg.norm(bound) == pytest.approx(0.1)
    left = (0.3 * H + 0.01 * np.eye(6)) @ bound + pull
    multiplier = -(left @ bound) / 0.01
    assert multiplier > 0.0
    assert np.allclose(left, -multiplier * bound, atol=1e-12)


def test_the_passive_fit_is_within_its_public_error() -> None:
    rng = np.random.default_rng(3)
    rows = 20_000
    line = rng.normal(size=(rows, 1)) @ np.ones((1, 8)) + 1e-5 * rng.normal(size=(rows, 8))
    block = ColumnBlock.align(line, np.arange(rows))
    rule, loss = OneRound(), family(LossSpec(name="logistic"))
    active = active_terms(rule, rows, loss, intercept=True)
    terms = all_terms(rule, rows, loss, 1, active, noise_std=0.05)
    z = np.clip(rng.normal(size=rows), -terms.received_clip, terms.received_clip)
    w = fit_passive(
        block, z, curvature=terms.curvature, strength=terms.passive_strength, weight_norm=1e9
    )
    X = np.stack([block.scores(slice(0, rows), e).expose() for e in np.eye(8)], axis=1)
    wide = X.astype(np.longdouble)
    left = wide.T @ (z + terms.curvature * (wide @ w)) / rows + terms.passive_strength * w
    assert float(np.linalg.norm(left)) / terms.passive_strength < terms.passive_error / 10


def test_a_quadratic_with_an_intercept_outside_the_ball() -> None:
    rng = np.random.default_rng(4)
    root = rng.normal(size=(5, 5))
    B, c = root @ root.T + 0.1 * np.eye(5), rng.normal(size=5) * 4
    free = quadratic_over_ball(B, c, radius=math.inf, intercept=True)
    assert np.allclose(B @ free, c)
    v = quadratic_over_ball(B, c, radius=0.3, intercept=True)
    left = c - B @ v
    assert np.linalg.norm(v[:-1]) == pytest.approx(0.3)
    assert left[-1] == pytest.approx(0.0, abs=1e-9)
    assert np.allclose(left[:-1], (left[:-1] @ v[:-1]) / 0.09 * v[:-1], atol=1e-9)


def test_parts_and_narrow_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    block, response = problem("logistic")
    terms = {"strength": 0.02, "feature_norm": 0.8, "error": 1e-8}
    w = fit_active(block, response, **terms)
    monkeypatch.setattr(solver, "PART_ROWS", 7)
    assert np.allclose(fit_active(block, response, **terms), w, atol=1e-9)
    whole = np.stack([block.scores(slice(0, ROWS), e).expose() for e in np.eye(4)], axis=1)
    narrow = ColumnBlock(whole.astype(np.float32), intercept=True)
    assert np.allclose(fit_active(narrow, response, **terms), w, atol=1e-5)


# The public rule -------------------------------------------------------------------------------


def terms_of(rows: int, passives: int, noise_std: float, rule: OneRound) -> object:
    loss = family(LossSpec(name="logistic"))
    active = active_terms(rule, rows, loss, intercept=True)
    return all_terms(rule, rows, loss, passives, active, noise_std=noise_std)


def test_the_terms_by_hand() -> None:
    terms = terms_of(1000, 2, 2.0, OneRound())
    plain = 2 * (4 + 0.125) / 125
    strength = plain * (1 + 3 * plain / 0.125)
    expected = {
        "active_strength": 0.01,
        "feature_norm": 0.5 * math.sqrt(2),
        "curvature": 0.125 * 1.5,
        "passive_strength": strength,
        "weight_norm": 8.0,
        "score_bound": 2.0,
        "received_clip": 5.0,
        "prior_variance": 0.5 * 0.0125 / (0.0125 + strength),
    }
    for name, value in expected.items():
        assert getattr(terms, name) == pytest.approx(value), name


def test_without_an_intercept_features_reach_as_far() -> None:
    loss = family(LossSpec(name="logistic"))
    assert active_terms(OneRound(), 10, loss, intercept=False).feature_norm == 0.5


@pytest.mark.parametrize("rows", [2, 500, 30_000, 10**6, 10**9])
def test_the_solvers_error_leaves_room_for_roundings(rows: int) -> None:
    loss = family(LossSpec(name="logistic"))
    active = active_terms(OneRound(), rows, loss, intercept=True)
    roundings = (4096 + rows / 4096) * 2.0**-52
    assert active.error * active.strength >= 4 * roundings
    if rows <= 10**6:
        assert 2 * 0.25 * active.error * math.sqrt(rows) <= 2.0**-12 * (1 + 1e-12)


def test_the_canonical_gamma_is_refused() -> None:
    loss = family(LossSpec(name="gamma_canonical"))
    with pytest.raises(SettingsError, match="use gamma"):
        active_terms(OneRound(), 100, loss, intercept=True)


@pytest.mark.parametrize("name", NAMES)
def test_there_are_settings_for_every_loss(name: LossName) -> None:
    loss: Family = family(LossSpec(name=name))
    rule = recommended(loss)
    assert 0.0 < rule.curvature <= loss.smoothness
    assert (rule == OneRound()) == (name in ("logistic", "bernoulli"))
