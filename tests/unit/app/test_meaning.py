"""What a cost allows to conclude, against the definitions and by playing the best attacker."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdpvfl_mq.app.report.meaning import detection, excess, meaning, posterior
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.pure import pure_units_of
from tests.curve import delta_of

pytestmark = pytest.mark.seconds


def test_no_cost_is_a_coin_toss():
    nothing = meaning(0.0, 0.0, releases=1)
    assert nothing.guess == 0.5
    assert all(hits == pytest.approx(alarms) for alarms, hits in nothing.detections)
    assert all(after == pytest.approx(before) for before, after in nothing.posteriors)


def test_an_infinite_cost_bounds_nothing():
    everything = meaning(math.inf, math.inf, releases=1)
    assert everything.guess == 1.0
    assert all(hits == 1.0 for _, hits in everything.detections)
    assert all(after == 1.0 for _, after in everything.posteriors)


def test_the_best_attacker_reaches_the_bound_and_no_more():
    """A Gaussian shifted by mu, the worst pair of neighbours, told apart by its likelihood."""
    mu, dice = mu_of(1.0, 0.01), np.random.default_rng(5)
    without, with_ = dice.normal(size=400_000), dice.normal(size=400_000) + mu
    right = ((without < mu / 2).mean() + (with_ > mu / 2).mean()) / 2
    assert right == pytest.approx(meaning(mu, 1.0, releases=1).guess, abs=0.003)
    threshold = np.quantile(without, 0.95)
    assert (with_ > threshold).mean() == pytest.approx(detection(mu, 0.05), abs=0.004)


def test_detection_agrees_with_epsilon_and_delta():
    """Hits <= exp(epsilon) alarms + delta for every epsilon, and equality is reached somewhere."""
    mu = 1.3
    for alarms in (0.001, 0.05, 0.3):
        bounds = [math.exp(e) * alarms + delta_of(e, mu) for e in np.linspace(0.001, 12.0, 400)]
        assert detection(mu, alarms) <= min(bounds) + 1e-9
        assert detection(mu, alarms) == pytest.approx(min(bounds), rel=0.01)


def test_odds_grow_by_at_most_exp_epsilon():
    after = posterior(1.0, 0.1)
    assert after / (1 - after) == pytest.approx(math.e * 0.1 / 0.9)


def test_the_beliefs_fail_as_often_as_the_loss_exceeds_epsilon_which_is_more_than_delta():
    """One release: the attacker updates his belief by the likelihood ratio of what he saw."""
    epsilon, delta, prior = 1.0, 0.01, 0.1
    mu, dice = mu_of(epsilon, delta), np.random.default_rng(6)
    seen = dice.normal(size=400_000) + mu
    odds = prior / (1 - prior) * np.exp(mu * seen - mu**2 / 2)
    failed = (odds / (1 + odds) > posterior(epsilon, prior)).mean()
    stated = meaning(mu, epsilon, releases=1).excess
    assert failed == pytest.approx(stated, abs=0.002)
    assert stated == pytest.approx(0.0535, abs=0.0005)
    assert stated > 5 * delta


def test_who_steers_many_releases_can_stop_when_he_is_ahead():
    """More often than after one release, and no more often than the report says."""
    mu, steps, dice = mu_of(1.0, 0.01), 500, np.random.default_rng(7)
    each = mu / math.sqrt(steps)
    losses = np.cumsum(each * (dice.normal(size=(20_000, steps)) + each / 2), axis=1)
    ahead = (losses.max(axis=1) > 1.0).mean()
    stated = meaning(mu, 1.0, releases=steps).excess
    assert excess(mu, 1.0, adaptive=False) + 0.02 < ahead <= stated + 0.005
    assert stated == pytest.approx(0.097, abs=0.001)


def test_no_excess_without_cost_and_always_without_a_bound():
    assert meaning(0.0, 0.0, releases=5).excess == 0.0
    assert excess(math.inf, 1.0, adaptive=True) == 1.0
    assert excess(50.0, 499.0, adaptive=True) <= 1.0
    assert excess(50.0, 1e6, adaptive=True) == 0.0  # every belief may become certainty


def test_pure_releases_are_read_by_their_own_curve():
    """Randomised response of epsilon 1: right in e / (1 + e) of all cases, never above epsilon."""
    one = pure_units_of(1.0)
    told = meaning(0.0, 1.0, releases=1, pure=(one,))
    assert told.guess == pytest.approx(math.e / (1 + math.e), rel=1e-9)
    assert dict(told.detections)[0.01] == pytest.approx(0.01 * math.e, rel=1e-6)
    beside = meaning(0.5, 2.0, releases=2, pure=(one,))
    alone = meaning(0.5, 2.0, releases=2)
    assert beside.guess > max(told.guess, alone.guess)
    assert alone.excess < beside.excess < 1.0


def test_a_vanishing_pure_release_changes_nothing():
    tiny = meaning(0.5, 1.5, releases=1, pure=(1,))
    plain = meaning(0.5, 1.5, releases=1)
    assert tiny.guess == pytest.approx(plain.guess, rel=1e-6)
    for (_, a), (_, b) in zip(tiny.detections, plain.detections, strict=True):
        assert b <= a <= b + 0.02  # the bound is taken over a grid of epsilons
    assert plain.excess <= tiny.excess
