"""The table of contraction factors, and the step sizes it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.privacy.contraction import contraction


def test_l2_passive_shrinks_by_one_minus_eta_lambda() -> None:
    assert contraction("l2", 0.5, lam=0.2) == pytest.approx(0.9)
    assert contraction("l2", 0.5, lam=0.2) >= 1 - 0.5 * 0.2


def test_l2_active_takes_the_worse_end_of_the_curvature() -> None:
    assert contraction("l2", 0.5, lam=0.2, beta=0.25) == pytest.approx(0.9)
    assert contraction("l2", 0.5, lam=0.2, beta=3.8) == pytest.approx(1.0)
    assert contraction("l2", 1.0, lam=0.9, beta=0.2) == pytest.approx(0.1)


@pytest.mark.parametrize("penalty", ["l1", "none"])
def test_no_shrinking_penalty_no_contraction(penalty: str) -> None:
    assert contraction(penalty, 0.5, lam=0.2, beta=0.25) == 1.0  # type: ignore[arg-type]


def test_elastic_net_divides() -> None:
    assert contraction("elastic_net", 0.5, lam=0.4, alpha=0.5) == pytest.approx(1 / 1.1)


@pytest.mark.parametrize("penalty", ["l2", "elastic_net", "l1", "none"])
def test_an_unpenalised_coordinate_is_never_shrunk(penalty: str) -> None:
    rho = contraction(penalty, 0.5, lam=0.4, alpha=0.5, beta=0.25, has_unpenalised=True)  # type: ignore[arg-type]
    assert rho == 1.0


def test_too_large_a_step_is_refused_with_the_largest_allowed() -> None:
    assert contraction("l2", 8.0, lam=0.0, beta=0.25) == 1.0
    with pytest.raises(RefusedError, match="eta <= 8"):
        contraction("l2", 8.1, lam=0.0, beta=0.25)
    with pytest.raises(RefusedError):
        contraction("l2", 3.0, lam=1.0)


@pytest.mark.parametrize("eta", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_is_positive_and_finite(eta: float) -> None:
    with pytest.raises(SettingsError):
        contraction("l2", eta, lam=0.1)


def test_an_unknown_penalty_is_refused() -> None:
    with pytest.raises(SettingsError, match="elastic_net"):
        contraction("l0", 0.1, lam=0.1)  # type: ignore[arg-type]


def test_factors_hold_for_random_quadratics() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        beta, lam = rng.uniform(0.1, 3), rng.uniform(0, 2)
        eta = rng.uniform(0.01, 2 / (beta + lam))
        hessian = np.diag(rng.uniform(0, beta, 3))
        basis, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        step = np.eye(3) - eta * (basis @ hessian @ basis.T + lam * np.eye(3))
        assert np.linalg.norm(step, 2) <= contraction("l2", eta, lam=lam, beta=beta) + 1e-12
