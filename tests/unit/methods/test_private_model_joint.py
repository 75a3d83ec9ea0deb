"""The joint fit and its cross-validation: labels of held-out rows enter no part of a fold's fit."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods.private_model.expectation import Expected, Shares, expect
from hdpvfl_mq.methods.private_model.joint import Joint, averaged, flattening, lifting, validated
from hdpvfl_mq.methods.private_model.last_fit import LastFit, last_fit
from hdpvfl_mq.methods.private_model.new_rows import theta_of
from hdpvfl_mq.methods.private_model.problem import FREE, Labels, Problem, folds
from schemas.model import LossSpec

pytestmark = pytest.mark.seconds

LOGISTIC, POISSON = family(LossSpec(name="logistic")), family(LossSpec(name="poisson"))
ROWS = 2500


def drowned(seed: int, *, partners: int, noise: float = 20.0) -> tuple[Problem, Expected]:
    """A party's rows, and scores of partners that are nothing but noise."""
    dice = np.random.default_rng(seed)
    A = np.hstack([dice.normal(size=(ROWS, 3)), np.ones((ROWS, 1))])
    y = (dice.random(ROWS) < 1 / (1 + np.exp(-A[:, 0]))).astype(float)
    size = np.full(partners, 0.3)
    values = dice.normal(size=(ROWS, partners)) * 0.3 * np.hypot(1.0, noise)
    shares = Shares(values=values, noise_std=noise * size, size=size)
    alone = Problem(
        X=A,
        labels=Labels(family=LOGISTIC, y=y),
        strengths=np.array([1.0, 1.0, 1.0, FREE]),
        given=np.zeros(ROWS),
    )
    return alone, expect(A, shares)


def fitted(seed: int, *, partners: int, forecast: float = 1.0) -> LastFit:
    alone, expected = drowned(seed, partners=partners)
    return last_fit(alone.X, alone.labels, expected, forecast=forecast)


def test_cross_validation_finds_no_gain_in_noise():
    """A prior of the coefficients that reads all labels finds one: on average 0.2 errors here."""
    found = [fitted(seed, partners=10) for seed in range(12)]
    assert np.mean([fit.gain / fit.gain_std for fit in found]) < -0.4


def test_a_label_held_out_changes_nothing_in_its_own_loss_but_the_label():
    """Flip one label: the losses of its fold's other rows do not move."""
    alone, expected = drowned(1, partners=4)
    whole = Joint.of(alone, expected, dispersion=1.0)
    y = alone.labels.y.copy()
    y[0] = 1.0 - y[0]
    flipped = Problem(
        X=alone.X,
        labels=Labels(family=LOGISTIC, y=y),
        strengths=alone.strengths,
        given=alone.given,
    )
    before, after = (validated(whole, each, expected, 1.0) for each in (alone, flipped))
    same_fold = next(held for held in folds(ROWS) if held[0])
    same_fold[0] = False
    np.testing.assert_allclose(after[same_fold], before[same_fold], rtol=1e-9)
    assert np.abs(after[~same_fold] - before[~same_fold]).max() > 1e-6


@pytest.mark.parametrize("partners", [1, 10])
def test_drowned_scores_are_left_out(partners):
    """If the plan forecasts no signal, noise does not pass for a gain by chance."""
    kept = [fitted(seed, partners=partners, forecast=0.01).is_joint for seed in range(12)]
    assert not any(kept)


def test_uncertainty_flattens_probabilities_and_lifts_means():
    doubt = np.array([0.0, 1.0])
    assert flattening(LOGISTIC, doubt).tolist() == pytest.approx([1.0, np.sqrt(1 + np.pi / 8)])
    assert flattening(POISSON, doubt).tolist() == [1.0, 1.0]
    assert lifting(POISSON, doubt).tolist() == [0.0, 0.5]
    assert lifting(LOGISTIC, doubt).tolist() == [0.0, 0.0]


def test_an_average_over_uncertain_theta_is_the_mean_label():
    theta, doubt = np.array([-1.0, 0.5]), np.array([0.7, 0.7])
    errors = np.random.default_rng(0).normal(size=200_000) * np.sqrt(0.7)
    for loss in (LOGISTIC, POISSON):
        means = [float(loss.mean(each + errors).mean()) for each in theta]
        assert loss.mean(averaged(loss, theta, doubt)).tolist() == pytest.approx(means, rel=0.03)


def test_rows_held_out_of_a_loss_with_a_log_link_are_predicted_without_bias():
    """Bug: the fit counts what noise adds to a mean of exp(theta), the prediction did not."""
    dice, rows, seen = np.random.default_rng(5), 12_000, 6000
    A = np.hstack([dice.normal(size=(rows, 2)), np.ones((rows, 1))])
    exact = 0.8 * dice.normal(size=rows)
    y = dice.poisson(np.exp(0.2 * A[:, 0] + exact - 0.3)).astype(float)
    values = (exact + 1.2 * dice.normal(size=rows))[:, None]
    shares = Shares(values=values[:seen], noise_std=np.array([1.2]), size=np.array([0.8]))
    expected = expect(A[:seen], shares)
    fit = last_fit(A[:seen], Labels(family=POISSON, y=y[:seen]), expected)
    assert fit.is_joint
    theta = theta_of(fit, POISSON, A[seen:], expected, values[seen:])
    assert float(np.exp(theta).mean()) == pytest.approx(float(y[seen:].mean()), rel=0.04)
