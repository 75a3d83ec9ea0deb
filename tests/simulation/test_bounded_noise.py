"""Whole runs of the private model with bounded noise: booked in slots, refused without them."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy.accountant import affordable, epsilon_shown
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.methods import PrivateModel
from schemas.model import LossSpec
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, policy, tables

METHOD = PrivateModel(columns_max=8, noise="bounded")
ALLOWED = policy(noises=("gaussian", "bounded"), pure_slots=(1.0, 1.0))
PARTIES = ("bank", "shop", "telco")


def run(policies=None, **changes):
    policies = policies or dict.fromkeys(PARTIES, ALLOWED)
    federation = Federation(manifest(method=METHOD, **changes), tables(), policies=policies)
    return federation, federation.simulate()


def account(federation: Federation, party: str):
    return Ledger(federation.ledgers[party], party).books


def test_a_run_pays_pure_epsilons_from_its_slots():
    federation, simulation = run()
    assert set(federation.outcomes.values()) == {"completed"}
    plan = simulation.nodes["bank"].state.trained.setup.plan
    for party, role in zip(PARTIES, ("active", "passive", "passive"), strict=True):
        books, cost = account(federation, party), plan.spent_by(role)
        assert books.runs["people", "test-run"].spent == cost
        assert len(cost.pure) == 1
        assert books.spent("people").pure == cost.pure
        budget = federation.manifest.budget
        assert affordable(budget, cost.mu2_units, cost.tau_units, cost.pure)
        assert epsilon_shown(cost, budget.delta) <= budget.epsilon * (1 + 1e-9)
    assert plan.spent_by("active").mu2_units == 0


def test_an_auditor_finds_nothing_wrong():
    federation, _ = run()
    verdicts = audit(evidence_of(federation))
    assert [v for v in verdicts if v.found] == []


@pytest.mark.parametrize(
    ("allowed", "word"),
    [
        (policy(pure_slots=(1.0,)), "policy.noises"),
        (policy(noises=("gaussian", "bounded")), "policy.lifetime"),
        (policy(noises=("gaussian", "bounded"), pure_slots=(0.5,)), "policy.lifetime"),
    ],
)
def test_a_policy_that_does_not_name_it_refuses(allowed, word):
    federation, simulation = run({**dict.fromkeys(PARTIES, ALLOWED), "shop": allowed})
    assert set(federation.outcomes.values()) != {"completed"}
    assert word in str(simulation.nodes["shop"].state)


def test_each_loss_has_its_law_and_less_noise_than_gaussian():
    rows = 4000
    plan = plan_run(manifest(method=METHOD), rows)
    assert plan.active_noise.bounded.kind == "randomised_response"
    assert plan.passive_noise.bounded.steps > 100
    poisson = manifest(method=METHOD, loss=LossSpec(name="poisson", label_high=5.0))
    assert plan_run(poisson, rows).active_noise.bounded.kind in ("piecewise", "two_point")
    # Less noise than Gaussian at the same budget, which is the point of it.
    gaussian = plan_run(manifest(method=PrivateModel(columns_max=8)), rows)
    assert plan.active_noise.noise_std < gaussian.active_noise.noise_std
    assert plan.passive_noise.noise_std < gaussian.passive_noise.noise_std
    assert np.isfinite(plan.received_clip)


class Weighted(Federation):
    """The active party's labels count by a column of its own."""

    def settings(self, party):
        given = super().settings(party)
        if party != "bank":
            return given
        return type(given)(**{**dict(given), "weight_column": "weight"})


def test_private_sample_weights_are_refused():
    loss = LossSpec(name="logistic", weight_max=2.0)
    policies = dict.fromkeys(PARTIES, ALLOWED)
    made = tables()
    bank = {name: made["bank"][name] for name in made["bank"].names}
    made["bank"] = Table.of({**bank, "weight": np.ones(len(bank["id"]))})
    federation = Weighted(manifest(method=METHOD, loss=loss), made, policies=policies)
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}
    assert "sample weights" in str(simulation.nodes["bank"].state)
