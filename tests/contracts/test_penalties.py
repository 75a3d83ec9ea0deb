"""One list of penalties x every property a penalty must have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpvfl_mq.glm.penalties import PENALTIES, penalty, project
from schemas.model import PenaltySpec

SPECS = [
    *(PenaltySpec(name=name, strength=0.3, mixing=0.5) for name in PENALTIES),
    PenaltySpec(name="elastic_net", strength=0.1, mixing=4.0),
]
every_penalty = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


def test_every_name_is_registered() -> None:
    assert set(PENALTIES) == set(PenaltySpec.model_fields["name"].annotation.__args__)


@every_penalty
def test_step_minimises_its_own_problem(spec: PenaltySpec) -> None:
    """Prox steps solve |v - (w - eta g)|^2 / (2 eta) + R(v); the l2 step is a gradient step."""
    rng, pen, eta = np.random.default_rng(3), penalty(spec), 0.7
    for _ in range(20):
        w, g = rng.normal(size=4), rng.normal(size=4)
        v = pen.step(w, g, eta)
        if spec.name == "l2":
            slope = [(pen.value(w + d) - pen.value(w - d)) / 2e-6 for d in 1e-6 * np.eye(4)]
            assert np.allclose(v, w - eta * (g + np.array(slope)), atol=1e-8)
            continue

        def problem(u: np.ndarray, at: np.ndarray = w - eta * g) -> float:
            return float(np.square(u - at).sum()) / (2 * eta) + pen.value(u)

        nearby = v + rng.normal(size=(200, 4)) * 10.0 ** rng.uniform(-6, 0, size=(200, 1))
        assert all(problem(u) >= problem(v) - 1e-12 for u in nearby)


@every_penalty
@pytest.mark.parametrize("eta", [0.01, 0.5, 3.0])
def test_passive_contraction(spec: PenaltySpec, eta: float) -> None:
    rng, pen = np.random.default_rng(5), penalty(spec)
    for _ in range(200):
        w, other, g = rng.normal(size=(3, 5)) * 10.0 ** rng.uniform(-3, 3)
        moved = np.linalg.norm(pen.step(w, g, eta) - pen.step(other, g, eta))
        assert moved <= pen.contraction((eta,)) * np.linalg.norm(w - other) * (1 + 1e-9)


@every_penalty
def test_a_free_coordinate_takes_the_credit_away(spec: PenaltySpec) -> None:
    pen, w, other = penalty(spec), np.array([1.0, 2.0]), np.array([1.0, -1.0])
    moved = pen.step(w, np.zeros(2), 0.5, (1,)) - pen.step(other, np.zeros(2), 0.5, (1,))
    allowed = pen.contraction((0.5,), has_free=True) * np.linalg.norm(w - other)
    assert np.linalg.norm(moved) <= allowed


@every_penalty
@pytest.mark.parametrize("eta", [0.01, 0.3, 0.8])
def test_active_contraction(spec: PenaltySpec, eta: float) -> None:
    """The gradient follows w through any curvature up to beta, eta (beta + lambda) <= 2."""
    rng, pen, beta = np.random.default_rng(7), penalty(spec), 2.0
    assert eta * (beta + pen.strength) <= 2.0
    for _ in range(200):
        basis, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        curvature = basis @ np.diag(rng.uniform(0.0, beta, 5)) @ basis.T
        w, other = rng.normal(size=(2, 5))
        moved = pen.step(w, curvature @ w, eta) - pen.step(other, curvature @ other, eta)
        allowed = pen.contraction((eta,), beta=beta) * np.linalg.norm(w - other)
        assert np.linalg.norm(moved) <= allowed * (1 + 1e-9)


@every_penalty
def test_free_coordinates_are_not_penalised(spec: PenaltySpec) -> None:
    pen, w, g = penalty(spec), np.array([1.0, -2.0, 3.0]), np.array([0.5, 0.5, 0.5])
    stepped = pen.step(w, g, 0.2, (2,))
    assert stepped[2] == w[2] - 0.2 * g[2]
    assert np.array_equal(stepped[:2], pen.step(w, g, 0.2)[:2])
    assert pen.value(w, (2,)) == pytest.approx(pen.value(w[:2]))
    assert np.array_equal(w, [1.0, -2.0, 3.0])


@every_penalty
def test_value_is_convex_and_zero_at_zero(spec: PenaltySpec) -> None:
    rng, pen = np.random.default_rng(11), penalty(spec)
    assert pen.value(np.zeros(4)) == 0.0
    for _ in range(50):
        a, b = rng.normal(size=(2, 4))
        assert pen.value((a + b) / 2) <= (pen.value(a) + pen.value(b)) / 2 + 1e-12


@given(
    w=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=8),
    other=st.lists(st.floats(-100, 100), min_size=8, max_size=8),
    k=st.floats(1e-3, 1e3),
)
def test_projection_ends_in_the_ball_and_enlarges_no_distance(
    w: list[float], other: list[float], k: float
) -> None:
    a, b = np.array(w), np.array(other[: len(w)])
    assert np.linalg.norm(project(a, k)) <= k * (1 + 1e-12)
    if np.abs(a).max() < 1e100:
        before = np.linalg.norm(a - b)
        assert np.linalg.norm(project(a, k) - project(b, k)) <= before * (1 + 1e-9) + 1e-9


def test_projection_leaves_the_inside_alone() -> None:
    w = np.array([0.3, -0.4])
    assert np.array_equal(project(w, 0.5), w)
