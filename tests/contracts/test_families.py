"""One list of losses x every property a loss must have; a new loss is in it by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpvfl_mq.app.demo.evaluate import reference_theta
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import FAMILIES, Family, family, unclipped
from schemas.model import LossName, LossSpec

SPECS = [
    *(LossSpec(name=name) for name in FAMILIES),
    LossSpec(name="logistic", residual_clip=0.3),
    LossSpec(name="least_squares", residual_clip=1.0, label_low=-1.0, label_high=2.0),
    LossSpec(name="huber", huber_c=2.0, residual_clip=0.5),
    LossSpec(name="squared_hinge", residual_clip=0.7),
    LossSpec(name="poisson", label_high=4.0, residual_clip=1.5),
    LossSpec(name="gamma", dispersion=0.3, residual_clip=2.5, label_low=0.2, label_high=5.0),
    LossSpec(name="gamma_canonical", dispersion=2.0, residual_clip=0.5, theta_min=0.01),
    LossSpec(name="normal", dispersion=4.0, residual_clip=0.4),
    LossSpec(name="bernoulli", weight_max=3.0),
]
UNCLIPPED = [
    LossSpec(name=name, residual_clip=1e12, huber_c=1.35 if name == "huber" else 1.0)
    for name in FAMILIES
]
RAW_LABELS = {
    "binary": (0.0, 1.0, -1.0),
    "count": (0.0, 1.0, 3.0, 500.0),
    "positive": (1e-6, 0.5, 1.0, 2.0, 1e6),
    "real": (-1e9, -1.0, 0.0, 0.3, 2.0, 1e9),
}


def name_of(spec: LossSpec) -> str:
    return spec.name if spec.residual_clip is None else f"{spec.name}-{spec.residual_clip:g}"


every_loss = pytest.mark.parametrize("spec", SPECS, ids=name_of)


def labels(loss: Family) -> np.ndarray:
    return np.unique(loss.encode(np.array(RAW_LABELS[loss.label_kind])))


def interesting_scores(loss: Family) -> np.ndarray:
    low, high = loss.theta_range
    grid = np.linspace(-12.0, 12.0, 4801)
    return np.unique(np.clip(np.concatenate([grid, [low, high, -0.05, -0.01]]), low, high))


def test_every_name_is_registered_once() -> None:
    assert set(FAMILIES) == set(LossSpec.model_fields["name"].annotation.__args__)
    assert all(FAMILIES[spec.name].name == spec.name for spec in SPECS)


@pytest.mark.parametrize("spec", UNCLIPPED, ids=name_of)
def test_residual_is_the_derivative_of_the_loss(spec: LossSpec) -> None:
    loss = family(spec)
    theta = np.linspace(-5.0, 5.0, 401)
    theta = theta[(theta > loss.theta_range[0] + 0.01) & (theta < loss.theta_range[1] - 0.01)]
    step = 1e-5
    for y in labels(loss):
        around = [loss.loss(theta + side * step, np.full_like(theta, y)) for side in (-1, 1)]
        slope = (around[1] - around[0]) / (2 * step)
        h = loss.residual(theta, np.full_like(theta, y))
        scale = 1.0 + np.abs(h) + np.abs(around[0]) * 1e-6
        assert np.max(np.abs(slope - h) / scale) < 1e-4


@every_loss
def test_curvature_is_the_derivative_of_the_clipped_residual(spec: LossSpec) -> None:
    loss = family(spec)
    low, high = max(loss.theta_range[0], -5.0), min(loss.theta_range[1], 5.0)
    step = 1e-6
    theta = np.linspace(low + 0.01, high - 0.01, 1003)
    for y in labels(loss):
        around = [loss.residual(theta + side * step, np.full_like(theta, y)) for side in (-1, 1)]
        slope = (around[1] - around[0]) / (2 * step)
        curvature = loss.curvature(theta, np.full_like(theta, y))
        assert curvature.min() >= 0.0
        assert curvature.max() * spec.weight_max <= loss.smoothness * (1 + 1e-12)
        off = np.abs(slope - curvature) > 1e-4 * (1.0 + curvature)
        assert off.sum() <= 2  # at a kink the slope is one-sided


@every_loss
def test_clipping_only_cuts_the_residual(spec: LossSpec) -> None:
    loss = family(spec)
    free = family(LossSpec(**{**dict(spec), "residual_clip": 1e12}))
    theta = interesting_scores(loss)
    for y in labels(loss):
        raw = free.residual(theta, np.full_like(theta, y))
        cut = loss.residual(theta, np.full_like(theta, y))
        assert np.array_equal(cut, np.clip(raw, -loss.clip, loss.clip))


@every_loss
def test_residual_is_monotone_in_theta(spec: LossSpec) -> None:
    loss = family(spec)
    theta = interesting_scores(loss)
    for y in labels(loss):
        assert np.all(np.diff(loss.residual(theta, np.full_like(theta, y))) >= -1e-12)


@every_loss
@settings(max_examples=60, deadline=None)
@given(theta=st.floats(allow_nan=True, allow_infinity=True), index=st.integers(0, 10))
def test_bound_holds_for_any_score(spec: LossSpec, theta: float, index: int) -> None:
    loss = family(spec)
    known = labels(loss)
    h = loss.residual(np.array([theta]), known[[index % len(known)]])
    assert np.isfinite(h).all()
    assert np.abs(h).max() <= loss.clip
    assert np.isfinite(loss.mean(np.array([theta]))).all()
    assert np.isfinite(loss.loss(np.array([theta]), known[[index % len(known)]])).all()


@every_loss
@pytest.mark.filterwarnings("error")
def test_no_score_overflows(spec: LossSpec) -> None:
    loss = family(spec)
    theta = np.array([1e308, -1e308, np.inf, -np.inf, 0.0, 710.0, -746.0, 5e-324])
    for y in labels(loss):
        values = np.full_like(theta, y)
        assert np.abs(loss.residual(theta, values)).max() <= loss.clip
        assert np.isfinite(loss.loss(theta, values)).all()
        assert np.isfinite(loss.mean(theta)).all()


@every_loss
def test_smoothness_holds_and_is_reached(spec: LossSpec) -> None:
    loss = family(spec)
    beta = loss.smoothness / spec.weight_max
    theta = interesting_scores(loss)
    fine = np.concatenate([theta + shift for shift in np.linspace(0.0, 0.005, 9)])
    theta = np.unique(np.clip(fine, *loss.theta_range))
    theta = theta[np.concatenate([[True], np.diff(theta) > 1e-7])]
    largest = 0.0
    for y in labels(loss):
        h = loss.residual(theta, np.full_like(theta, y))
        slopes = np.abs(np.diff(h)) / np.diff(theta)
        largest = max(largest, float(slopes[np.abs(theta[:-1]) < 20.0].max()))
    assert largest <= beta * (1.0 + 1e-6)
    # A logistic residual clipped below 1/2 never reaches the steepest part of its curve.
    assert largest >= 0.9 * beta or (loss.is_logit and loss.clip < 0.5)


@every_loss
def test_any_number_becomes_a_label_in_the_declared_range(spec: LossSpec) -> None:
    loss = family(spec)
    everything = [y for kind in RAW_LABELS.values() for y in kind]
    encoded = loss.encode(np.array([*everything, 0.5, -0.5, 1e300, np.inf, -np.inf, np.nan]))
    assert encoded.min() >= loss.label_low
    assert encoded.max() <= loss.label_high


@pytest.mark.parametrize("spec", UNCLIPPED, ids=name_of)
def test_perfect_prediction_has_no_residual(spec: LossSpec) -> None:
    loss = family(spec)
    y = labels(loss)
    # Certainty of a class is at the end of the range of scores, for the hinge a margin beyond 1.
    theta = np.where(y > 0.0, 50.0, -50.0) if loss.label_kind == "binary" else loss.link(y)
    assert np.abs(loss.residual(theta, y)).max() < 1e-9


@every_loss
def test_link_inverts_mean(spec: LossSpec) -> None:
    loss = family(spec)
    theta = np.clip(np.linspace(-0.9, 0.9, 7), *loss.theta_range)
    assert np.allclose(loss.link(loss.mean(theta)), theta, atol=1e-9)


@every_loss
@pytest.mark.parametrize("k", [0.1, 1.0, 5.0])
def test_release_bound_covers_one_replaced_row(spec: LossSpec, k: float) -> None:
    """The received part of theta is the same, its own part within k, the label any."""
    loss = family(spec)
    received = np.linspace(-8.0, 8.0, 33)
    largest = 0.0
    for y, other in ((y, other) for y in labels(loss) for other in labels(loss)):
        for own in np.linspace(-k, k, 9):
            before = loss.residual(received + own, np.full_like(received, y))
            after = loss.residual(received[:, None] + np.linspace(-k, k, 9), np.array([[other]]))
            largest = max(largest, float(np.abs(after - before[:, None]).max()))
    bound = loss.release_bound(k) / spec.weight_max
    assert largest <= bound <= 2.0 * loss.clip
    if loss.is_logit and loss.clip == 1.0:
        assert largest >= 0.999 * bound


@every_loss
def test_sample_weights_scale_the_constants(spec: LossSpec) -> None:
    once = family(LossSpec(**{**dict(spec), "weight_max": 1.0}))
    thrice = family(LossSpec(**{**dict(spec), "weight_max": 3.0}))
    assert thrice.residual_bound == pytest.approx(3.0 * once.residual_bound)
    assert thrice.smoothness == pytest.approx(3.0 * once.smoothness)
    assert thrice.release_bound(1.0) == pytest.approx(3.0 * once.release_bound(1.0))


def test_an_offset_widens_the_release_bound() -> None:
    """Without the offset in it, a row that brings offset 5 would move its residual by more."""
    loss = family(LossSpec(name="logistic", offset_max=5.0))
    y = np.array([1.0, -1.0])
    swing = np.abs(np.diff(loss.residual(np.array([-5.0, 5.0]), y)))[0]
    assert family(LossSpec(name="logistic")).release_bound(0.0) < swing <= loss.release_bound(0.0)


@every_loss
def test_numbers_stay_within_the_magnitude(spec: LossSpec) -> None:
    loss = family(spec)
    theta = np.concatenate([interesting_scores(loss), loss.clamp(np.geomspace(1e-9, 1e9, 200))])
    theta = np.concatenate([theta, loss.clamp(-theta)])
    for y in labels(loss):
        moves = np.abs(theta) * loss.curvature(theta, np.full_like(theta, y))
        assert moves.max() * spec.weight_max <= loss.magnitude
    assert loss.magnitude >= loss.residual_bound


WIDEST = [unclipped(LossSpec(name=name, offset_max=100.0)) for name in FAMILIES]
NARROW = [LossSpec(**{**dict(spec), "residual_clip": 1e-6}) for spec in WIDEST]


@pytest.mark.parametrize("spec", [*SPECS, *WIDEST, *NARROW], ids=name_of)
def test_roundings_stay_within_their_bound(spec: LossSpec) -> None:
    """Two runs whose scores are almost equal, an adversary who puts theta where it hurts."""
    loss, dice = family(spec), np.random.default_rng(8)
    y = np.repeat(labels(loss), 2000)
    own = dice.uniform(-1.0, 1.0, size=y.size) * 10.0 ** dice.uniform(-9, 1, size=y.size)
    other = own * (1.0 + dice.choice([0.0, 1e-15, 1e-12, 1e-9], size=y.size))
    aim = loss.link(y) if loss.label_kind != "binary" else np.zeros(y.size)
    offset = dice.uniform(-1.0, 1.0, size=y.size) * spec.offset_max
    for far in (0.0, 1e-9, 1e-3, 1.0, 30.0, 1e6):
        received = aim - offset + far * dice.normal(size=y.size)
        first = loss.residual(own + received + offset, y)
        second = loss.residual(other + received + offset, y)
        allowed = loss.smoothness * np.abs(own - other) + loss.rounding(0.0)
        assert (spec.weight_max * np.abs(first - second) <= allowed).all()


@every_loss
def test_logit_and_log_links_are_declared_where_they_are_used(spec: LossSpec) -> None:
    loss = family(spec)
    theta = np.clip(np.linspace(-3.0, 3.0, 7), *loss.theta_range)
    assert loss.is_logit == np.allclose(loss.mean(theta), 1.0 / (1.0 + np.exp(-theta)))
    assert loss.is_log == np.allclose(loss.mean(theta), np.exp(theta))


@every_loss
def test_guesses_are_slopes_the_loss_can_have(spec: LossSpec) -> None:
    loss = family(spec)
    usual, steepest = loss.path_slopes()
    assert 0.0 < usual <= steepest <= loss.smoothness
    assert all(0.0 < term <= 1e9 for term in loss.published_terms())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_reference_fits_labels_of_the_kind(name: LossName) -> None:
    loss, dice = family(LossSpec(name=name)), np.random.default_rng(4)
    X = dice.normal(size=(40, 2))
    y = dice.choice(RAW_LABELS[loss.label_kind], size=40)
    assert np.isfinite(reference_theta(loss, X, y, X)).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_dispersion_is_used_or_refused(name: LossName) -> None:
    spec = LossSpec(name=name, dispersion=2.0, residual_clip=1e12)
    if not FAMILIES[name].has_dispersion:
        with pytest.raises(SettingsError, match="dispersion"):
            family(spec)
        return
    plain, y = family(LossSpec(name=name, residual_clip=1e12)), np.array([0.5, 2.0])
    theta = np.array([-0.5, -0.7])
    assert np.allclose(family(spec).residual(theta, y), plain.residual(theta, y) / 2.0)


def test_constants_of_the_published_table() -> None:
    bounds = {
        "logistic": (1.0, 0.25),
        "least_squares": (6.0, 2.0),
        "squared_hinge": (2.0, 2.0),
        "bernoulli": (1.0, 0.25),
    }
    for name, (bound, beta) in bounds.items():
        loss = family(LossSpec(name=name))
        assert (loss.residual_bound, loss.smoothness) == (bound, beta)
    poisson = family(LossSpec(name="poisson", label_high=4.0))
    assert (poisson.residual_bound, poisson.smoothness) == (4.0, 8.0)
    assert family(LossSpec(name="logistic")).release_bound(1.0) == pytest.approx(1.4621, abs=1e-4)


@every_loss
def test_descent_starts_where_it_is_legal(spec: LossSpec) -> None:
    loss = family(spec)
    assert loss.theta_range[0] <= loss.start_theta <= loss.theta_range[1]
    if loss.label_kind == "positive":
        assert loss.mean(np.array([loss.start_theta])) == pytest.approx(loss.label_middle)
    else:
        assert loss.start_theta == 0.0


@pytest.mark.parametrize(
    "spec",
    [
        LossSpec(name="poisson", label_low=11.0),
        LossSpec(name="gamma", label_low=0.0),
        LossSpec(name="gamma_canonical", label_low=-1.0),
    ],
    ids=name_of,
)
def test_impossible_ranges_are_refused(spec: LossSpec) -> None:
    with pytest.raises(SettingsError, match="label_low"):
        family(spec)
