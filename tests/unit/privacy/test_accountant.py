"""The fold of events, and epsilon against Google's accountants."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpvfl_mq.privacy.accountant import Spent, affordable, epsilon_shown, fold
from schemas.privacy import MU2_UNIT_BITS, Budget, SpendEvent


def event(mu2_units: int, tau_units: int = 0, *, exact: bool = False) -> SpendEvent:
    return SpendEvent(
        release_id="r/p/score/0",
        round=0,
        mechanism="exact" if exact else "lattice_gaussian",
        mu2_units=mu2_units,
        tau_units=tau_units,
    )


def composed(mus: np.ndarray) -> Spent:
    return fold(event(math.ceil(mu**2 * 2**MU2_UNIT_BITS)) for mu in mus)


def test_the_fold_adds_integers_in_any_order() -> None:
    events = [event(3, 5), event(4, 6), event(0, 0, exact=True)]
    assert fold(events) == fold(reversed(events)) == Spent(7, 11, 1)
    assert fold([]) == Spent()


def compositions(count: int, seed: int) -> list[tuple[np.ndarray, float]]:
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        size = int(rng.integers(1, 8))
        mus = rng.uniform(0.05, 1.0, size) * rng.uniform(0.3, 3.0) / math.sqrt(size)
        cases.append((mus, float(10 ** rng.uniform(-9, -2))))
    return cases


def agrees_with_google(count: int, seed: int) -> None:
    import dp_accounting  # noqa: PLC0415 - slow to load, in every worker that collects
    from dp_accounting import pld, rdp  # noqa: PLC0415 - as above

    for mus, delta in compositions(count, seed):
        mine = epsilon_shown(composed(mus), delta)
        accountant = pld.PLDAccountant()
        renyi = rdp.RdpAccountant()
        for mu in mus:
            gaussian = dp_accounting.GaussianDpEvent(1.0 / float(mu))
            accountant.compose(gaussian)
            renyi.compose(gaussian)
        theirs = accountant.get_epsilon(delta)
        # PLD discretises from above by 1e-4 a composition; we are exact, from above too.
        assert mine <= theirs * 1.01 + 1e-3
        assert mine >= theirs - 1.1e-4 * len(mus) - 1e-3
        assert mine <= renyi.get_epsilon(delta) * (1 + 1e-9)


def test_epsilon_agrees_with_dp_accounting() -> None:
    agrees_with_google(3, seed=1)


@pytest.mark.slow
def test_epsilon_agrees_with_dp_accounting_on_a_thousand_compositions() -> None:
    agrees_with_google(1000, seed=2)


def test_exact_is_infinite_and_nothing_is_nothing() -> None:
    assert math.isinf(epsilon_shown(Spent(exact=1), 0.01))
    assert epsilon_shown(Spent(), 0.01) == 0.0


def test_tau_is_charged_to_delta() -> None:
    units = 2**MU2_UNIT_BITS
    plain = epsilon_shown(Spent(units, 0), 1e-5)
    assert epsilon_shown(Spent(units, 2**40), 1e-5) >= plain
    assert math.isinf(epsilon_shown(Spent(4000 * units, 2**40), 1e-5))
    budget = Budget(epsilon=50.0, delta=1e-5)
    assert affordable(budget, units, 0)
    assert affordable(budget, units, 2**40)
    assert affordable(budget, units, 2**55)  # at a smaller epsilon, which implies this one
    assert not affordable(budget, 40 * units, 2**55)  # exp(45) 2^-85 is above delta / 100
    assert affordable(budget, 40 * units, 2**40)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_shown_and_affordable_are_one_border(epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-6)
    low, high = 0, 2**50
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affordable(budget, middle, 2**30) else (low, middle)
    assert epsilon_shown(Spent(low, 2**30), 1e-6) <= epsilon * (1 + 1e-9)
    assert epsilon_shown(Spent(high + 2, 2**30), 1e-6) >= epsilon * (1 - 1e-9)
