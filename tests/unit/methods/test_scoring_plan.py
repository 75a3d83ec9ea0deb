"""The plan of a scoring session: what a score costs whom."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.scoring.plan import ScoringPlan
from hdpvfl_mq.privacy.accountant import Spent, affordable
from schemas.methods import Scoring
from schemas.privacy import Budget
from tests.federation import manifest


def plan(budget=None, rows=1000, **fields) -> ScoringPlan:
    method = Scoring(model_run="spring", **fields)
    made = plan_run(manifest(method=method, budget=budget), rows)
    assert isinstance(made, ScoringPlan)
    return made


def test_nothing_is_reserved_of_the_data_sets_budget():
    for each in (plan(), plan(Budget(epsilon=1.0, delta=1e-5), scores="noised")):
        assert each.spent_by("passive") == each.spent_by("active") == Spent()


@pytest.mark.parametrize("bound", [0.3, 2.0, 5.0])
def test_a_noised_score_is_priced_for_2_b_whatever_the_number_of_rows(bound):
    budget = Budget(epsilon=1.0, delta=1e-5)
    small, large = (
        plan(budget, rows=rows, scores="noised", score_bound=bound) for rows in (10, 10**6)
    )
    assert small.passive_noise == large.passive_noise
    assert bound <= small.score_bound < bound + 2.0**-9
    assert small.passive_noise.sensitivity == pytest.approx(2 * small.score_bound, rel=1e-9)
    assert affordable(budget, small.mu2_units, small.passive_noise.tau_cumulative[0])


def test_a_manifest_says_one_thing():
    for fields in (
        {"method": Scoring(model_run="a"), "budget": Budget(epsilon=1.0, delta=0.01)},
        {"method": Scoring(model_run="a", scores="noised"), "budget": None},
        {"method": Scoring(model_run="a"), "budget": None, "guarantee": "none"},
        {"method": Scoring(model_run="a"), "budget": None, "absence": "nothing"},
        {
            "method": Scoring(model_run="a", scores="noised", coarsen=0.5),
            "budget": Budget(epsilon=1.0, delta=0.01),
        },
    ):
        with pytest.raises(ValidationError):
            manifest(**fields)
