"""Bounded mechanisms: exact laws by enumeration, prices from above, unbiased readings.

The law of an output is measured on `draw` itself: the uniforms at which it changes are found to
the last of their 128 bits, so nothing is estimated.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy import bounded, bounded_laws
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.bounded_laws import (
    LARGEST_EPSILON,
    class_noise,
    label_noise,
    number_noise,
    piecewise,
    two_point,
)
from hdpvfl_mq.privacy.table import WHOLE, integer_table
from schemas.privacy import PURE_UNIT_BITS

pytestmark = pytest.mark.seconds
WORD = 2**64
EPSILONS = (2.0**-20, 0.01, 0.1, 0.5, 1.0, 1.29, 2.0, 5.0, LARGEST_EPSILON)


def drawn(noise: BoundedNoise, place: int, uniforms: list[int]) -> list[int]:
    """What `draw` makes of these 128-bit numbers."""
    high = np.array([u // WORD for u in uniforms], dtype=np.uint64)
    low = np.array([u % WORD for u in uniforms], dtype=np.uint64)
    places = np.full(len(uniforms), place, dtype=np.int64)
    return [int(point) for point in noise.draw(places, high, low)]


def measured_law(noise: BoundedNoise, place: int) -> list[int]:
    """The exact weight of every output point, of 2^128, from `draw` alone.

    A draw reads the top bits as a column and compares the rest with one threshold, so within a
    column the output changes at most once; that place is found by bisection.
    """
    columns = 1 << max(1, (noise.points - 1).bit_length())
    capacity = WHOLE // columns
    weights = [0] * noise.points
    for start in range(0, WHOLE, capacity):
        first, last = drawn(noise, place, [start, start + capacity - 1])
        low, high = start, start + capacity  # `low` still gives `first`, `high` does not
        if first == last:
            weights[first] += capacity
            continue
        while high - low > 1:
            middle = (low + high) // 2
            same = drawn(noise, place, [middle]) == [first]
            low, high = (middle, high) if same else (low, middle)
        weights[first] += high - start
        weights[last] += start + capacity - high
    return weights


def worst_ratio(laws: list[list[int]]) -> Fraction:
    """The largest likelihood ratio of any output between any two inputs."""
    worst = Fraction(1)
    for point in zip(*laws, strict=True):
        assert min(point) > 0
        worst = max(worst, Fraction(max(point), min(point)))
    return worst


def booked_covers(noise: BoundedNoise, laws: list[list[int]]) -> bool:
    """Whether e^booked is at least the worst ratio: 300 bits, e^x rounded down."""
    with gmpy2.context(precision=300, round=gmpy2.RoundDown):
        promised = gmpy2.exp(gmpy2.mpfr(noise.pure_units) / 2**PURE_UNIT_BITS)
    ratio = worst_ratio(laws)
    return bool(promised >= gmpy2.mpq(ratio.numerator, ratio.denominator))


def small_window(points: int, window: int, epsilon: float) -> BoundedNoise:
    """The piecewise law with few points, by the same rule."""
    return bounded_laws._window("piecewise", (-1.0, 1.0), points, window, epsilon)


def small_laws() -> list[BoundedNoise]:
    some = [label_noise(e) for e in EPSILONS] + [class_noise(k, 1.0) for k in (2, 3, 5, 7)]
    some += [small_window(p, w, e) for p, w in ((5, 2), (11, 4), (13, 8)) for e in (0.1, 1.0, 4.0)]
    return some + [replace(two_point(-1.0, 1.0, e), steps=8) for e in (0.01, 1.0, 5.0)]


def name(noise: BoundedNoise) -> str:
    return f"{noise.kind}-{noise.points}-{noise.window}-{noise.pure_units / 2**40:.3g}"


@pytest.mark.parametrize("noise", small_laws(), ids=name)
def test_every_input_and_output_by_enumeration(noise: BoundedNoise) -> None:
    laws = [measured_law(noise, place) for place in range(noise.steps + 1)]
    for place, law in enumerate(laws):
        assert sum(law) == WHOLE
        assert law == noise.weights(place)
    assert booked_covers(noise, laws)
    # And the price is the true one, up to the unit.
    assert noise.pure_units * 2.0**-PURE_UNIT_BITS <= math.log(worst_ratio(laws)) + 2.0**-39
    if noise.kind != "two_point":
        a, b = noise.weight_in, noise.weight_out
        q = Fraction(a * noise.window, WHOLE)
        outside = noise.points - noise.window
        assert worst_ratio(laws) == q * outside / ((1 - q) * noise.window)
        assert all(sorted(law) == sorted([a] * noise.window + [b] * outside) for law in laws)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_price_is_never_above_what_was_asked_and_never_below_the_law(epsilon: float) -> None:
    asked = math.ceil(Fraction(epsilon) * 2**PURE_UNIT_BITS)
    for noise in (
        label_noise(epsilon),
        class_noise(10, epsilon),
        piecewise(-1.0, 1.0, epsilon),
        two_point(-1.0, 1.0, epsilon),
    ):
        assert noise.pure_units <= asked
        assert noise.pure_units >= asked - 2  # nothing is wasted either
        inside, outside = noise.window, noise.points - noise.window
        assert noise.weight_in * inside + noise.weight_out * outside == WHOLE
        assert booked_covers(noise, [[noise.weight_in], [noise.weight_out]])
        if noise.kind == "two_point":
            assert (noise.weight_in - noise.weight_out) % noise.steps == 0


def test_the_published_piecewise_mechanism_is_the_limit() -> None:
    for epsilon in (0.5, 1.0, 2.0, 6.0):
        noise, root = piecewise(-1.0, 1.0, epsilon), math.exp(epsilon / 2)
        assert noise.window / noise.points == pytest.approx(1 / (root + 1), rel=3e-3)
        v0, v1 = (root + 3) / (3 * (root - 1) ** 2), 1 / (root - 1)
        assert noise.variance(0.0) == pytest.approx(v0, rel=0.02)
        assert noise.variance(1.0) == pytest.approx(v0 + v1, rel=0.02)


class ShorterAtTheEnd(BoundedNoise):
    """The fault of a discretised density: at the last place the window loses a point."""

    def draw(self, places: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
        if places[0] != self.steps:
            return super().draw(places, high, low)
        window = self.window - 1
        weights = [self.weight_in] * window + [self.weight_out] * (self.points - window)
        weights = [weight * WHOLE // sum(weights) for weight in weights]
        weights[-1] += WHOLE - sum(weights)
        return (places + integer_table(weights).draw(high, low)) % self.points


def test_a_window_one_point_shorter_for_some_input_is_noticed() -> None:
    noise = small_window(11, 4, 1.0)
    fields = {f.name: getattr(noise, f.name) for f in dataclasses.fields(noise)}
    for each, holds in ((noise, True), (ShorterAtTheEnd(**fields), False)):
        laws = [measured_law(each, place) for place in range(each.steps + 1)]
        assert booked_covers(each, laws) is holds


@pytest.mark.parametrize("rule", [label_noise, lambda e: two_point(-1.0, 1.0, e)])
def test_a_threshold_rounded_the_wrong_way_is_noticed(rule: object) -> None:
    """One unit of the threshold is enough, at a price with all the bits the check has."""
    for epsilon in (0.01, 1.0, 5.0):
        noise = rule(epsilon)
        unit = noise.steps // 2 if noise.kind == "two_point" else 1
        below = noise.weight_out - unit
        with gmpy2.context(precision=300, round=gmpy2.RoundUp):
            dearest = gmpy2.exp(gmpy2.mpfr(epsilon))
        assert gmpy2.mpq(noise.weight_in, noise.weight_out) <= dearest
        assert gmpy2.mpq(WHOLE - below, below) > dearest


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(2.0**-20, LARGEST_EPSILON),
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
)
def test_any_epsilon_and_range(epsilon: float, low: float, width: float) -> None:
    noise = number_noise(low, low + width, epsilon)
    assert noise.pure_units <= math.ceil(Fraction(epsilon) * 2**PURE_UNIT_BITS)
    assert booked_covers(noise, [[noise.weight_in], [noise.weight_out]])
    ends = np.array([low, low + width, low - 1.0, math.inf, -math.inf, math.nan])
    places = noise.places(ends)
    assert list(places[:5]) == [0, noise.steps, 0, noise.steps, 0]
    assert 0 <= places[5] <= noise.steps


@pytest.mark.parametrize("noise", small_laws(), ids=name)
def test_decoding_is_unbiased_and_its_variance_is_known(noise: BoundedNoise) -> None:
    points = np.arange(noise.points)
    for place in range(noise.steps + 1):
        law = np.array([float(Fraction(w, WHOLE)) for w in noise.weights(place)])
        decoded = noise.decode(points)
        true = noise.low + (noise.high - noise.low) * place / noise.steps
        scale = np.abs(decoded).max()
        assert law @ decoded == pytest.approx(true, abs=1e-12 * scale)
        t = 2.0 * place / noise.steps - 1.0
        assert law @ (decoded - true) ** 2 == pytest.approx(noise.variance(t * t), rel=1e-9)
        assert law @ (decoded - true) ** 2 <= noise.noise_std**2 * (1 + 1e-9)


def test_classes_are_decoded_without_bias() -> None:
    noise = class_noise(4, 1.5)
    columns = noise.decode_classes(np.arange(4))
    for true in range(4):
        law = np.array([float(Fraction(w, WHOLE)) for w in noise.weights(true)])
        assert law @ columns == pytest.approx(np.eye(4)[true], abs=1e-12)
    with pytest.raises(SettingsError):
        piecewise(-1.0, 1.0, 1.0).decode_classes(np.arange(4))


def test_randomised_response_keeps_a_label_as_often_as_it_may() -> None:
    noise = label_noise(1.0)
    assert noise.weight_in / WHOLE == pytest.approx(math.e / (1 + math.e), rel=1e-15)
    c = (math.e + 1) / (math.e - 1)
    assert noise.decode(np.array([0, 1])) == pytest.approx([0.5 - c / 2, 0.5 + c / 2])
    assert noise.variance(1.0) == pytest.approx((c * c - 1) / 4)


def test_the_law_of_less_variance_is_chosen() -> None:
    assert number_noise(-1.0, 1.0, 0.3).kind == "two_point"
    assert number_noise(-1.0, 1.0, 2.0).kind == "piecewise"


@pytest.mark.parametrize(
    "make",
    [
        lambda: label_noise(0.0),
        lambda: label_noise(17.0),
        lambda: label_noise(math.nan),
        lambda: class_noise(1, 1.0),
        lambda: class_noise(5000, 1.0),
        lambda: piecewise(1.0, 1.0, 1.0),
        lambda: two_point(0.0, math.inf, 1.0),
    ],
)
def test_what_has_no_law_is_refused(make: object) -> None:
    with pytest.raises(SettingsError):
        make()


def test_every_draw_does_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One table look-up, or one comparison, for a whole chunk: nothing loops by value."""
    seen = []
    table = bounded._shift

    class Counting:
        def __init__(self, inner: object) -> None:
            self.inner = inner

        def draw(self, high: np.ndarray, low: np.ndarray) -> np.ndarray:
            seen.append(len(high))
            return self.inner.draw(high, low)  # type: ignore[attr-defined]  # object

    monkeypatch.setattr(bounded, "_shift", lambda noise: Counting(table(noise)))
    noise = piecewise(-1.0, 1.0, 1.0)
    words = np.arange(100, dtype=np.uint64) << np.uint64(57)
    noise.draw(noise.places(np.linspace(-1, 1, 100)), words, words)
    assert seen == [100]


def test_windows_of_all_inputs_are_one_law_moved() -> None:
    noise = piecewise(-1.0, 1.0, 1.0)
    for one, other in pairwise((0, 1, noise.steps // 2, noise.steps)):
        moved = noise.weights(one)
        by = other - one
        assert moved[-by:] + moved[:-by] == noise.weights(other)
