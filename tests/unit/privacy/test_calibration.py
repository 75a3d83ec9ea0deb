"""The analytic Gaussian from both ends of its range, against an independent evaluation."""

from __future__ import annotations

import math

import pytest

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.calibration import (
    bracket,
    epsilon_of,
    exact_delta,
    mu_of,
    noise_std_analytic,
    noise_std_classical,
)
from tests.curve import delta_of
from tests.lazily import Lazily

special = Lazily("scipy.special")


EPSILONS = (1e-3, 1e-2, 0.1, 1.0, 5.0, 10.0, 20.0, 100.0, 1e3)
DELTAS = (1e-12, 1e-9, 1e-5, 1e-2, 0.3)
PAIRS = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_there_and_back_and_rounded_to_the_safe_side(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta * (1 + 1e-12)
    assert delta_of(epsilon, mu * (1 + 1e-9)) > delta
    assert epsilon_of(mu, delta) <= epsilon * (1 + 1e-9)
    assert epsilon_of(mu * (1 + 1e-9), delta) >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0, 6.0])
def test_the_curve_agrees_with_double_precision_logs(epsilon: float, mu: float) -> None:
    first = special.log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
    expected = math.exp(first) * -math.expm1(second - first)
    assert delta_of(epsilon, mu) == pytest.approx(expected, rel=1e-9)
    assert delta_of(epsilon, mu) >= expected * (1 - 1e-9)


def test_the_curve_falls_and_ends() -> None:
    curve = [delta_of(epsilon, 1.0) for epsilon in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] == pytest.approx(2 * special.ndtr(0.5) - 1)
    assert 0.0 < curve[-1] < 1e-300
    assert delta_of(1.0, 0.0) < 1e-300
    assert delta_of(1.0, 1e4) == 1.0


def test_no_mu_is_given_where_the_curve_overflows() -> None:
    """Bug: from epsilon 7.5e8 on, the largest mu of all passed for private."""
    assert exact_delta(2.0**24, mu_of(2.0**24, 1e-5)) <= 1e-5
    for epsilon in (7.5e8, 1e12):
        with pytest.raises(SettingsError, match="at most"):
            mu_of(epsilon, 1e-5)


def test_no_epsilon_is_needed_below_the_total_variation() -> None:
    assert epsilon_of(0.0, 0.01) == 0.0
    assert epsilon_of(0.001, 0.01) == 0.0
    assert math.isinf(epsilon_of(2.0**20, 0.01))


def test_the_classical_formula_wastes_at_one_and_fails_at_ten() -> None:
    waste = noise_std_classical(1.0, 1.0, 0.01) / noise_std_analytic(1.0, 1.0, 0.01)
    assert waste == pytest.approx(1.655, abs=1e-3)
    assert noise_std_classical(1.0, 10.0, 0.01) == pytest.approx(0.311, abs=1e-3)
    assert noise_std_analytic(1.0, 10.0, 0.01) == pytest.approx(0.350, abs=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (-1.0, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_what_is_no_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(SettingsError):
        mu_of(epsilon, delta)
    with pytest.raises(SettingsError):
        noise_std_classical(1.0, epsilon, delta)


def bisected(is_after) -> tuple[float, float]:
    """What `bracket` finds, by halving alone."""
    high = 1.0
    while not is_after(high) and high < 2.0**40:
        high *= 4.0
    low = high / 4.0
    while is_after(low):
        low, high = low / 4.0, low
    while high - low > 2.0**-44 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_after(middle) else (middle, high)
    return low, high


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS[::3])
def test_the_secant_search_ends_at_the_points_of_bisection(epsilon: float, delta: float) -> None:
    """Plans, and so the digests that parties compare, depend on the last bit."""
    asked = []

    def reached(mu: float):
        asked.append(mu)
        return exact_delta(epsilon, mu)

    found = bracket(reached, delta, rising=True)
    assert found == bisected(lambda mu: exact_delta(epsilon, mu) > delta)
    assert len(asked) < 40  # bisection alone asks more than 44 times
    mu = found[0]
    falling = bracket(lambda e: exact_delta(e, mu), delta, rising=False)
    assert falling == bisected(lambda e: exact_delta(e, mu) <= delta)


def test_a_search_that_is_misled_falls_back_to_bisection() -> None:
    """A curve with a step: the secant search ends beside it, so every point is asked."""
    step = 0.7321

    def reached(point: float):
        return exact_delta(1.0, 0.5) * (1 + (point > step) * 1e9)

    delta = float(exact_delta(1.0, 0.5)) * 1.5
    assert bracket(reached, delta, rising=True) == bisected(lambda point: point > step)
