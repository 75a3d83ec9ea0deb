"""Bounded noise through the one way out: its address, its price, and what a receiver refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.arrays.unreleased import Unreleased
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.bounded_laws import class_noise, label_noise, piecewise, two_point
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.plan import plan_bounded
from hdpvfl_mq.privacy.receiving import receive, receive_bounded
from schemas.privacy import Budget, Release, SpendEvent
from schemas.tensor import Tensor

SCORE = piecewise(-1.5, 1.5, 1.0)
VALUES = np.linspace(-1.5, 1.5, 400)


def released(
    noise: BoundedNoise = SCORE, values: np.ndarray = VALUES, **changes: object
) -> Release:
    where = {"party": "shop", "run": "r1", "seed": b"n" * 32, "kind": "share", "round": 0}
    where |= {"transcript": b"t" * 32, **changes}
    plan = plan_bounded(noise, Budget(epsilon=1.0, delta=0.01), mean_square=1.0)
    plan = replace(plan, rounds=2, mu2_cumulative=(0, 0), tau_cumulative=(0, 0))
    mechanism = Mechanism(where["party"], where["run"], where["seed"], {where["kind"]: plan})
    values = Unreleased(values)
    return mechanism.release(values, where["kind"], where["round"], where["transcript"])


def test_a_release_is_points_with_a_pure_price() -> None:
    release = released()
    assert release.release_id == "r1/shop/share/0"
    assert release.tensor.dtype == "<i2"
    assert release.event == SpendEvent(
        release_id="r1/shop/share/0",
        round=0,
        mechanism="piecewise",
        mu2_units=0,
        tau_units=0,
        pure_units=SCORE.pure_units,
    )
    assert released() == release


@pytest.mark.parametrize(
    "change",
    [
        {"party": "bank"},
        {"run": "r2"},
        {"seed": b"m" * 32},
        {"kind": "other"},
        {"round": 1},
        {"transcript": b"u" * 32},
    ],
)
def test_any_other_address_gives_other_noise(change: dict[str, object]) -> None:
    first, other = (receive_bounded(r, SCORE, count=400) for r in (released(), released(**change)))
    assert (first != other).mean() > 0.9


def test_another_value_gets_other_noise() -> None:
    moved = VALUES.copy()
    moved[3] = -moved[3]
    shifts = [
        (receive_bounded(released(values=values), SCORE, count=400) - SCORE.places(values))
        % SCORE.points
        for values in (VALUES, moved)
    ]
    assert (shifts[0] != shifts[1]).mean() > 0.9


def test_another_law_gets_other_uniforms() -> None:
    """One stream under two epsilons would name every label it keeps at one and turns at the other.

    With streams of their own, a label that two releases disagree about is 0 or 1 as often.
    """
    labels = (np.arange(4000) % 3 == 0).astype(np.float64)
    seen = [released(label_noise(e), labels).tensor.array().astype(int) for e in (1.0, 2.0)]
    # Kept at 1 and turned at 2 cannot happen under one stream; with two it is 9 % of the rows.
    odd = (seen[0] == labels) & (seen[1] != labels)
    assert odd.mean() == pytest.approx(0.731 * 0.119, abs=0.02)


@pytest.mark.parametrize(
    "noise", [SCORE, two_point(-1.5, 1.5, 0.5), label_noise(1.0, low=-1.5, high=1.5)]
)
def test_what_is_received_is_unbiased(noise: BoundedNoise) -> None:
    ends = np.where(np.arange(20_000) % 4 == 0, 1.5, -1.5)
    points = receive_bounded(released(noise, ends), noise, count=20_000)
    error = noise.decode(points) - ends
    std = math.sqrt(noise.variance(1.0))
    assert abs(error.mean()) < 4.5 * std / math.sqrt(20_000)
    assert error.std() == pytest.approx(std, rel=0.05)
    assert std <= noise.noise_std * (1 + 1e-12)


def test_values_beyond_the_range_and_nan_do_not_abort() -> None:
    wild = np.array([math.nan, math.inf, -math.inf, 9.0, 0.0])
    inside = np.array([0.0, 1.5, -1.5, 1.5, 0.0])
    assert released(values=wild) == released(values=inside)


def test_a_large_release_reads_its_stream_in_chunks() -> None:
    """The same bytes as in one piece: chunks are an implementation's business."""
    values = np.resize(VALUES, 300_000)
    points = receive_bounded(released(values=values), SCORE, count=300_000)
    assert 0 <= points.min() <= points.max() < SCORE.points


def changed(release: Release, points: np.ndarray | None = None, **event: object) -> Release:
    """A release as a peer might make it up."""
    spend = SpendEvent.model_validate({**dict(release.event), **event})
    tensor = release.tensor if points is None else Tensor.of(points)
    return Release.model_validate({**dict(release), "event": spend, "tensor": tensor})


def test_what_the_law_cannot_have_made_is_refused() -> None:
    release, points = released(), released().tensor.array()
    beyond = points.copy()
    beyond[0] = SCORE.points
    below = points.copy()
    below[0] = -1
    for wrong in (
        changed(release, beyond),
        changed(release, below),
        changed(release, points[:-1]),
        changed(release, points.astype(np.float64)),
        changed(release, mechanism="two_point"),
        changed(release, mechanism="lattice_gaussian", pure_units=0),
    ):
        with pytest.raises(PeerError):
            receive_bounded(wrong, SCORE, count=400)
    with pytest.raises(PeerError):
        receive(release, count=400, bound=1e9)  # points are no numbers


def test_classes_travel_as_points() -> None:
    noise = class_noise(5, 3.0)
    classes = np.arange(5000) % 5
    points = receive_bounded(released(noise, classes.astype(float)), noise, count=5000)
    kept = noise.weight_in / 2**128
    assert (points == classes).mean() == pytest.approx(kept, abs=0.03)
    assert noise.decode_classes(points).sum(axis=1) == pytest.approx(np.ones(5000))
