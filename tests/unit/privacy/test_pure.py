"""The accountant of Gaussian and pure releases together, against brute force and Google's."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy import pure
from hdpvfl_mq.privacy.accountant import Spent, affordable, epsilon_shown
from hdpvfl_mq.privacy.bounded_laws import label_noise
from hdpvfl_mq.privacy.calibration import epsilon_of, exact_delta, mu_of
from hdpvfl_mq.privacy.pure import (
    advantage,
    delta_with_pure,
    epsilon_with_pure,
    mu_beside,
    patterns,
    pure_units_of,
)
from schemas.privacy import MU2_UNIT_BITS, Budget

pytestmark = pytest.mark.seconds

LISTS = st.lists(st.sampled_from([0.05, 0.1, 0.3, 0.5, 1.0, 2.0]), max_size=5)


def units(*epsilons: float) -> tuple[int, ...]:
    return tuple(pure_units_of(epsilon) for epsilon in epsilons)


def plain_delta(epsilon: float, mu: float) -> float:
    if mu == 0.0:
        return max(0.0, 1.0 - math.exp(epsilon))
    return float(exact_delta(epsilon, mu))


def by_all_signs(epsilon: float, mu: float, pures: list[float]) -> float:
    """The formula as it is written: one term for every pattern of signs."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(pures)):
        chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, pures, strict=True))
        loss = sum(s * e for s, e in zip(signs, pures, strict=True))
        total += chance * plain_delta(epsilon - loss, mu)
    return total


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(0.0, 6.0), mu=st.sampled_from([0.0, 0.1, 0.5, 2.0]), pures=LISTS)
def test_equal_epsilons_counted_together_change_nothing(
    epsilon: float, mu: float, pures: list[float]
) -> None:
    mine = float(delta_with_pure(epsilon, mu, units(*pures)))
    assert mine == pytest.approx(by_all_signs(epsilon, mu, pures), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("mu", "pures"), [(0.3, (1.0,)), (0.5, (0.5, 0.5, 1.0)), (1.0, (0.2, 0.7)), (0.1, (2.0, 0.3))]
)
def test_it_agrees_with_dp_accounting(mu: float, pures: tuple[float, ...]) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow to load

    step = 5e-5
    theirs = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=step)
    for e in pures:
        flips = 2 / (1 + math.exp(e))
        theirs = theirs.compose(
            pld.from_randomized_response(flips, 2, value_discretization_interval=step)
        )
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        mine = float(delta_with_pure(epsilon, mu, units(*pures)))
        google = theirs.get_delta_for_epsilon(epsilon)
        assert mine <= google + 1e-12  # they round up
        assert mine >= google - 3e-5


def test_without_pure_releases_it_is_the_gaussian_account() -> None:
    for epsilon, delta in ((0.1, 1e-6), (1.0, 0.01), (10.0, 1e-5)):
        mu = mu_of(epsilon, delta)
        assert mu_beside(epsilon, delta, ()) == mu
        shown = epsilon_with_pure(mu, delta, ())  # both stop at a width of 2^-44, rounded up
        assert shown == pytest.approx(epsilon_of(mu, delta), rel=2.0**-43, abs=0.0)
        assert delta_with_pure(epsilon, mu, ()) == exact_delta(epsilon, mu)


def test_the_inverses_stop_on_the_safe_side() -> None:
    for epsilon, delta, pures in (
        (1.0, 0.01, (0.8,)),
        (1.0, 1e-5, (0.5,)),
        (8.0, 1e-5, (1.0,) * 4),
    ):
        mu = mu_beside(epsilon, delta, units(*pures))
        assert delta_with_pure(epsilon, mu, units(*pures)) <= delta
        assert delta_with_pure(epsilon, mu * (1 + 1e-9), units(*pures)) > delta
        shown = epsilon_with_pure(mu, delta, units(*pures))
        assert epsilon * (1 - 1e-9) <= shown <= epsilon * (1 + 1e-9)


def test_pure_releases_that_leave_nothing_are_refused() -> None:
    with pytest.raises(SettingsError, match="leave nothing"):
        mu_beside(1.0, 1e-5, units(0.6, 0.6))
    assert mu_beside(1.0, 0.01, units(1.0)) > 0.0  # delta is left for it


def test_the_sampler_s_distance_is_charged_beside_pure_releases() -> None:
    budget, slots = Budget(epsilon=1.0, delta=0.01), units(0.5)
    mu2 = math.floor(mu_beside(1.0, 0.01, slots) ** 2 * 2**MU2_UNIT_BITS)
    assert affordable(budget, mu2, 0, slots)
    assert not affordable(budget, mu2, 2**125, slots)
    assert not affordable(budget, mu2 + 2**20, 0, slots)
    assert not affordable(budget, mu2, 0, (*slots, *units(0.01)))
    plain, charged = (epsilon_shown(Spent(mu2, tau, 0, slots), 0.01) for tau in (0, 2**122))
    assert plain <= 1.0 + 1e-9 < charged


def test_many_equal_slots_stay_cheap_and_many_different_ones_over_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(patterns(units(*[0.1] * 100))) == 101
    different = units(*[0.1 + 0.01 * n for n in range(10)])
    terms = len(patterns(different))
    monkeypatch.setattr(pure, "MOST_PATTERNS", 2048)
    patterns.cache_clear()
    full = float(delta_with_pure(1.0, 0.5, different))
    monkeypatch.undo()
    patterns.cache_clear()
    assert terms <= pure.MOST_PATTERNS
    coarse = float(delta_with_pure(1.0, 0.5, different))
    assert full <= coarse <= full * 1.05


def test_what_an_attacker_gains() -> None:
    assert (
        advantage(0.0, units(1.0)) == pytest.approx(math.tanh(0.5)) == pytest.approx(0.46, abs=5e-3)
    )
    assert advantage(mu_of(1.0, 0.01)) == pytest.approx(0.21, abs=5e-3)
    assert advantage(mu_of(1.0, 1e-5)) == pytest.approx(0.11, abs=5e-3)
    # Both together leave less than their sum, and more than either.
    both = advantage(0.3, units(0.5))
    assert max(advantage(0.3), math.tanh(0.25)) < both < advantage(0.3) + math.tanh(0.25)
    # What is said of a release is what its law allows.
    noise = label_noise(1.0)
    share = (noise.weight_in - noise.weight_out) / 2**128
    assert advantage(0.0, (noise.pure_units,)) == pytest.approx(share, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(pures=LISTS.filter(bool), mu=st.floats(0.0, 2.0), epsilon=st.floats(0.0, 4.0))
def test_more_is_never_cheaper(pures: list[float], mu: float, epsilon: float) -> None:
    def at(mu: float, *epsilons: float) -> float:
        return float(delta_with_pure(epsilon, mu, units(*epsilons)))

    here = at(mu, *pures) - 1e-12
    assert at(mu + 0.1, *pures) >= here
    assert at(mu, *pures, 0.1) >= here
    assert at(mu, pures[0] + 0.2, *pures[1:]) >= here
    # Mechanisms that share a slot cost at most what the slot was priced at.
    assert at(mu, sum(pures)) >= here


@pytest.mark.parametrize("pures", [(), (0.5,), (1.0, 0.25, 0.25)])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 5.0, 60.0])
def test_the_epsilon_found_is_as_narrow_and_safe_as_by_bisection(mu, pures) -> None:
    delta, pure = 1e-5, units(*pures)
    shown = epsilon_with_pure(mu, delta, pure)
    assert delta_with_pure(shown, mu, pure) <= delta
    if shown:
        assert delta_with_pure(shown * (1.0 - 2.0**-43), mu, pure) > delta


def test_an_epsilon_that_no_double_holds_is_found() -> None:
    huge = epsilon_with_pure(100.0, 1e-6, ())  # doubles overflow there
    assert delta_with_pure(huge, 100.0, ()) <= 1e-6 < delta_with_pure(huge * 0.999999, 100.0, ())
