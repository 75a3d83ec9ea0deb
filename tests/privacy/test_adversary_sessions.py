"""The search drives scoring sessions; what it looks for in them is noticed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hdpvfl_mq.methods.private_model.statistics import scores
from hdpvfl_mq.privacy.score_limits import Limits
from parties.process import scored_book
from parties.rounds import scoring
from tests.adversary.scenarios import Scenario, scenario
from tests.adversary.search import drawn, play
from tests.adversary.tap import Leak

SEED = 26  # a training of the private model, then a session in which people are scored


@cache
def chosen() -> Scenario:
    return scenario(np.random.default_rng(SEED))


def played():
    dice = np.random.default_rng(SEED)
    scenario(dice)
    return play(chosen(), drawn(chosen(), dice), dice)[0]


def test_a_session_follows_and_nobody_is_scored_too_often():
    assert chosen().is_session
    pair = played()
    assert pair.answers.scores > 0
    assert max(pair.answers.asked.values()) <= chosen().policy.queries_max


def test_an_account_without_a_limit_is_noticed(monkeypatch):
    monkeypatch.setattr(scored_book, "Limits", lambda queries, *more: Limits(10**6, *more))
    with pytest.raises(Leak, match="more often than the policy allows"):
        played()


def test_scores_that_depend_on_other_rows_are_noticed(monkeypatch):
    """As centring by the mean of the rows that are scored would make them."""

    def centred(*given):
        exact = scores(*given)
        return exact - exact.mean()

    monkeypatch.setattr(scoring, "scores", centred)
    with pytest.raises(Leak, match="tells of a row other than the scored one"):
        played()
