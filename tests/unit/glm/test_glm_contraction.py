"""Contraction factors of the penalties, and the step sizes they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.glm.penalties import PENALTIES, penalty
from schemas.model import PenaltyName, PenaltySpec


def rho(
    name: PenaltyName,
    *etas: float,
    lam: float,
    alpha: float = 0.0,
    beta: float | None = None,
    has_free: bool = False,
) -> float:
    spec = PenaltySpec(name=name, strength=lam, mixing=alpha)
    return penalty(spec).contraction(etas, beta=beta, has_free=has_free)


def test_l2_passive_shrinks_by_one_minus_eta_lambda() -> None:
    assert rho("l2", 0.5, lam=0.2) == pytest.approx(0.9)
    assert rho("l2", 0.5, lam=0.2) >= 1 - 0.5 * 0.2


def test_l2_active_takes_the_worse_end_of_the_curvature() -> None:
    assert rho("l2", 0.5, lam=0.2, beta=0.25) == pytest.approx(0.9)
    assert rho("l2", 0.5, lam=0.2, beta=3.8) == pytest.approx(1.0)
    assert rho("l2", 1.0, lam=0.9, beta=0.2) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["l1", "none"])
def test_no_shrinking_penalty_no_contraction(name: PenaltyName) -> None:
    assert rho(name, 0.5, lam=0.2, beta=0.25) == 1.0


def test_elastic_net_divides() -> None:
    assert rho("elastic_net", 0.5, lam=0.4, alpha=0.5) == pytest.approx(1 / 1.1)


def test_the_smallest_of_several_steps_contracts_least() -> None:
    assert rho("l2", 1.0, 0.1, lam=0.5) == rho("l2", 0.1, lam=0.5) == pytest.approx(0.95)


@pytest.mark.parametrize("name", PENALTIES)
def test_an_unpenalised_coordinate_is_never_shrunk(name: PenaltyName) -> None:
    assert rho(name, 0.5, lam=0.4, alpha=0.5, beta=0.25, has_free=True) == 1.0


def test_too_large_a_step_is_refused_with_the_largest_allowed() -> None:
    assert rho("l2", 8.0, lam=0.0, beta=0.25) == 1.0
    with pytest.raises(RefusedError, match="eta <= 8"):
        rho("l2", 8.1, lam=0.0, beta=0.25)
    with pytest.raises(RefusedError):
        rho("l2", 0.1, 3.0, lam=1.0)


@pytest.mark.parametrize("eta", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_is_positive_and_finite(eta: float) -> None:
    with pytest.raises(SettingsError):
        rho("l2", eta, lam=0.1)


def test_factors_hold_for_random_quadratics() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        beta, lam = rng.uniform(0.1, 3), rng.uniform(0, 2)
        eta = rng.uniform(0.01, 2 / (beta + lam))
        hessian = np.diag(rng.uniform(0, beta, 3))
        basis, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        step = np.eye(3) - eta * (basis @ hessian @ basis.T + lam * np.eye(3))
        assert np.linalg.norm(step, 2) <= rho("l2", eta, lam=lam, beta=beta) + 1e-12
