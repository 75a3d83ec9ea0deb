"""Labels with sample weights and offsets; several classes; measures of quality."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.arrays.unreleased import Unreleased
from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.glm.families import FAMILIES, family
from hdpvfl_mq.glm.multiclass import decide
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.glm.response import Response, check_declared
from schemas.model import LabelKind, LossName, LossSpec
from tests.lazily import Lazily

metrics = Lazily("sklearn.metrics")


RNG = np.random.default_rng(23)
POISSON = LossSpec(name="poisson", label_high=5.0, weight_max=2.0, offset_max=1.5)
ALL = slice(0, 4)


def own(values: list[float]) -> Unreleased:
    return Unreleased(np.array(values))


def test_residual_adds_own_received_and_offset_and_multiplies_by_weight() -> None:
    response = Response(
        family(POISSON),
        np.array([0.0, 1.0, 2.0, 9.0]),
        weights=np.array([1.0, 0.0, 0.5, 7.0]),
        offset=np.array([0.0, 1.0, -1.0, 9.0]),
    )
    received = np.array([0.1, 0.2, 0.3, -9.0])
    h = response.residual(ALL, own([0.0, 0.0, 0.5, 0.0]), received).expose()
    expected = [np.exp(0.1), 0.0, 0.5 * (np.exp(-0.2) - 2.0), 2.0 * (np.exp(-7.5) - 5.0)]
    assert np.allclose(h, expected)
    assert np.abs(h).max() <= response.family.residual_bound


def test_residual_of_a_batch_uses_its_rows() -> None:
    response = Response(family(LossSpec(name="least_squares")), np.array([0.0, 1.0, 2.0, 3.0]))
    assert np.allclose(response.residual(slice(2, 4), own([0, 0]), 0.0).expose(), [-4.0, -6.0])
    assert np.allclose(response.loss(slice(2, 4), own([0, 0]), 1.0).expose(), [1.0, 4.0])
    assert repr(response) == "<Response of 4 rows, least_squares>"


def test_any_weight_and_offset_is_brought_into_its_range() -> None:
    wild = np.array([-1.0, np.nan, np.inf, 0.5])
    response = Response(family(POISSON), np.ones(4), weights=wild, offset=wild)
    h = response.residual(ALL, own([0.0] * 4), 0.0).expose()
    assert np.allclose(h, [0.0, 0.0, 2.0 * (np.exp(1.5) - 1.0), 0.5 * (np.exp(0.5) - 1.0)])


@pytest.mark.parametrize("kind", ["binary", "count", "positive", "real"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_loss_is_refused_by_the_declared_kind_alone(name: LossName, kind: LabelKind) -> None:
    loss = family(LossSpec(name=name))
    fits = loss.label_kind in (kind, "real") or (kind, loss.label_kind) == ("binary", "count")
    if fits:
        check_declared(loss, label_kind=kind, has_offset=False)
        return
    with pytest.raises(SettingsError, match=f"data.label_kind is {kind}"):
        check_declared(loss, label_kind=kind, has_offset=False)


@pytest.mark.parametrize("keyword", ["weights", "offset"])
def test_their_number_must_fit(keyword: str) -> None:
    with pytest.raises(DataError, match="differ in number"):
        Response(family(POISSON), np.array([1.0, 2.0]), **{keyword: np.zeros(3)})


def test_an_offset_must_be_declared() -> None:
    with pytest.raises(SettingsError, match="offset_max"):
        Response(family(LossSpec(name="poisson")), np.array([1.0]), offset=np.array([0.1]))
    with pytest.raises(SettingsError, match="offset_max"):
        check_declared(family(LossSpec(name="poisson")), label_kind="count", has_offset=True)


def test_the_largest_score_decides_the_class() -> None:
    scores = [np.array([1.0, -3.0, 0.0]), np.array([0.5, -2.0, 0.0]), np.array([-9.0, 0.0, -1.0])]
    assert decide(scores).tolist() == [0, 2, 0]
    with pytest.raises(DataError, match="different numbers"):
        decide([np.zeros(2), np.zeros(3)])


def test_binary_quality_is_that_of_the_reference() -> None:
    y = (RNG.random(500) < 0.4).astype(float)
    theta = np.round(RNG.normal(size=500) + y, 1)
    for name in ("logistic", "bernoulli", "squared_hinge"):
        found = quality(family(LossSpec(name=name)), theta, y)
        assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, theta))
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, theta > 0))
    alone = quality(family(LossSpec()), theta[:1], y[:1])
    assert np.isnan(alone["auc"])


@pytest.mark.parametrize(("name", "power"), [("poisson", 1), ("gamma", 2), ("gamma_canonical", 2)])
def test_d2_is_that_of_the_reference(name: str, power: int) -> None:
    loss = family(LossSpec(name=name, theta_min=0.01))
    mean = RNG.uniform(0.5, 4.0, size=300)
    y = np.clip(RNG.poisson(mean), 1, 9).astype(float)
    found = quality(loss, loss.link(mean), y)["d2"]
    assert found == pytest.approx(metrics.d2_tweedie_score(y, mean, power=power), rel=1e-9)


@pytest.mark.parametrize("name", ["least_squares", "normal"])
def test_d2_of_squares_is_r2(name: str) -> None:
    y = RNG.uniform(-2, 2, size=200)
    theta = y + RNG.normal(size=200)
    assert quality(family(LossSpec(name=name)), theta, y)["d2"] == pytest.approx(
        metrics.r2_score(y, theta)
    )
    assert np.isnan(quality(family(LossSpec(name=name)), theta, np.zeros(200))["d2"])
