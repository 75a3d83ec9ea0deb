"""What hdpvfl plan says of the two kinds of noise."""

from __future__ import annotations

import math

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.app.commands.plan_noises import noise_choices
from hdpvfl_mq.privacy.accountant import affordable
from hdpvfl_mq.privacy.pure import pure_units_of
from schemas.privacy import Budget

TEN = Budget(epsilon=10.0, delta=1e-5)


def choices(epsilon: float = 1.0, delta: float = 1e-5, lifetime: Budget = TEN):
    return noise_choices(Budget(epsilon=epsilon, delta=delta), lifetime)


def test_what_an_attacker_gains_is_shown_for_both():
    found = choices()
    assert found["bounded"]["labels"]["attacker_gains"] == pytest.approx(math.tanh(0.5))
    assert found["gaussian"]["labels"]["attacker_gains"] == pytest.approx(0.11, abs=5e-3)
    assert choices(delta=0.01)["gaussian"]["labels"]["attacker_gains"] == pytest.approx(
        0.21, abs=5e-3
    )
    # Less noise is what the larger gain buys.
    for what in ("labels", "scores"):
        assert found["bounded"][what]["noise"] < found["gaussian"][what]["noise"]


def test_the_runs_of_a_lifetime_are_a_border():
    runs = choices()["bounded"]["labels"]["runs"]
    slot = pure_units_of(1.0)
    assert affordable(TEN, 0, 0, (slot,) * runs)
    assert not affordable(TEN, 0, 0, (slot,) * (runs + 1))
    # At a small delta Gaussian runs are cheaper to repeat: the mu^2 of many add up to few epsilons.
    assert choices()["gaussian"]["labels"]["runs"] > runs


def test_an_epsilon_without_a_bounded_law_says_so():
    assert "bounded noise takes" in choices(epsilon=20.0)["bounded"]["refused"]


def test_the_page_shows_both(capsys):
    command = ["plan", "--rows", "24000", "--delta", "1e-5", "--lifetime", "5"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "attacker gains" in shown
    assert "0.46" in shown
    assert "epsilon 5" in " ".join(shown.split())
