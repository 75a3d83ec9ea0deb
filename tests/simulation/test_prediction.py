"""Scoring with the models of an earlier run: exact or noised, priced, and refused where it must."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.machine import Received
from hdpvfl_mq.methods import plan_run, prediction_of
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.runtime.simulation import Faults
from parties.common_rows import rows_of
from schemas.messages import Residual, Resume
from schemas.methods import PassiveSide, Prediction, PrivateModel
from schemas.model import LossSpec
from schemas.privacy import Budget, Release
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, policy, tables
from tests.samples import release
from tests.simulation.predicting import EXACT, changed, ledgers_of, prediction, refused, trained


def theta_by_id(federation, simulation) -> dict[int, float]:
    state = simulation.nodes["bank"].state
    ids = federation.data["bank"].ids[0]
    trained, own = state.trained, simulation.nodes["bank"].role.own
    theta = trained.rounds.theta.tolist()
    return dict(zip(ids[rows_of(own, trained.setup).order].tolist(), theta, strict=True))


def centrally(federation, models) -> dict[int, float]:
    """What somebody with all rows and all weights would compute."""
    parts = {}
    for party, model in models.items():
        data = federation.data[party]
        block = ColumnBlock.align(data.X, np.arange(data.rows), intercept=party == "bank")
        scores = block.scores(slice(0, data.rows), model.weights).expose()
        parts[party] = dict(zip(data.ids[0].tolist(), scores.tolist(), strict=True))
    common = set.intersection(*(set(part) for part in parts.values()))
    return {key: sum(part[key] for part in parts.values()) for key in common}


def test_exact_scores_are_those_of_all_weights_in_one_place():
    _, models = trained()
    federation = prediction(models, **EXACT)
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    found, expected = theta_by_id(federation, simulation), centrally(federation, models)
    assert found.keys() == expected.keys()
    assert [found[k] for k in expected] == pytest.approx(list(expected.values()), abs=1e-12)


def test_only_the_passive_parties_pay_and_on_top_of_the_training():
    before, models = trained()
    federation = prediction(models, ledgers=ledgers_of(before))
    alone = {p: Ledger(db, p).books.epsilon_spent("people") for p, db in before.ledgers.items()}
    federation.simulate()
    books = {p: Ledger(db, p).books for p, db in federation.ledgers.items()}
    assert books["bank"].epsilon_spent("people") == alone["bank"]
    for passive in ("shop", "telco"):
        spent = books[passive].runs["people", "scores"].spent
        assert spent.mu2_units == plan_run(federation.manifest, 77).passive_noise.spent.mu2_units
        assert books[passive].epsilon_spent("people") > max(20.0, alone[passive])


def test_exact_scores_are_booked_as_infinitely_much():
    before, models = trained()
    federation = prediction(models, ledgers=ledgers_of(before), **EXACT)
    federation.simulate()
    books = {p: Ledger(db, p).books for p, db in federation.ledgers.items()}
    assert books["bank"].epsilon_spent("people") < 1.1
    assert books["shop"].epsilon_spent("people") == float("inf")


def test_scores_leave_with_the_noise_of_the_plan():
    _, models = trained()
    federation = prediction(models)
    simulation = federation.simulate()
    noise_std = plan_run(federation.manifest, 77).passive_noise.noise_std
    shares = [
        e.message.release for e in evidence_of(federation).said if e.header.kind == "score_share"
    ]
    assert len(shares) == 2
    for share in shares:
        values = share.tensor.array() * 2.0**share.exponent
        assert share.noise_std == noise_std
        assert values.std() == pytest.approx(noise_std, rel=0.25)
    assert simulation.nodes["bank"].state.trained.rounds.theta is not None


def test_an_auditor_finds_nothing_and_a_restart_changes_nothing():
    _, models = trained()
    calm = prediction(models)
    theta = calm.simulate().nodes["bank"].state.trained.rounds.theta
    assert exit_code(audit(evidence_of(calm))) == 0
    for seed in range(5):
        disturbed = prediction(models)
        faults = Faults(loss=0.05, copies=0.05, delay_s=0.01, crashes=4, crash_window_s=0.3)
        found = (
            disturbed.simulate(seed=seed, faults=faults).nodes["bank"].state.trained.rounds.theta
        )
        assert np.array_equal(found, theta)
        assert disturbed.spent() == calm.spent()


def test_with_little_noise_the_joint_model_is_found_again():
    side = PassiveSide(step_size=20.0, weight_norm=0.3, received_clip=1.0)
    _, models = trained(passive=side, budget=Budget(epsilon=40.0, delta=0.01))
    budget = Budget(epsilon=900.0, delta=0.01)
    quiet = prediction(models, budget=budget, policies=wide(models), rows=24)
    found = theta_by_id(quiet, quiet.simulate())
    expected = centrally(quiet, models)
    order = sorted(expected)
    together = np.corrcoef([found[k] for k in order], [expected[k] for k in order])[0, 1]
    assert together > 0.9


def wide(models):
    budget = Budget(epsilon=1000.0, delta=0.01)
    return {p: policy(run_epsilon_max=1000.0, lifetime=budget) for p in models}


def test_a_party_refuses_a_prediction_that_is_not_with_its_model():
    _, models = trained()
    other = manifest(run="another-run")
    assert "of run another-run" in refused(prediction(changed(models, "shop", manifest=other)))
    assert "policy.dataset" in refused(prediction(changed(models, "telco", dataset="others")))
    other_loss = LossSpec(name="bernoulli")
    assert "the manifest's loss is not that" in refused(prediction(models, loss=other_loss))


def test_a_party_without_a_model_refuses_to_predict_and_one_with_a_model_to_train():
    _, models = trained()
    assert "settings.model" in refused(prediction({**models, "shop": None}))
    federation = Federation(manifest(), tables(60))
    federation.models = models
    assert "settings.model" in refused(federation)


@pytest.mark.parametrize("field", ["weight_norm", "distance"])
def test_a_passive_party_refuses_bounds_smaller_than_its_training_proved(field):
    _, models = trained()
    spec = prediction_of(models["bank"].manifest)
    small = Prediction(**{**dict(spec), field: getattr(spec, field) * 0.99})
    assert "smaller than the run proved" in refused(prediction(models, method=small))


def test_exact_scores_need_the_word_of_the_policy():
    _, models = trained()
    strict = {"shop": policy(exact_scoring=False)}
    assert "exact_scoring" in refused(prediction(models, policies=strict, **EXACT))


def test_a_residual_in_a_prediction_is_refused_and_teaches_nothing():
    _, models = trained()
    federation = prediction(models)
    federation.simulate()
    node = federation.node("shop")
    node.open()
    state = replace(node.state.trained, round=0)
    sample = release(np.zeros(77, dtype=np.int8), kind="residual", party="bank")
    said = Release(**{**dict(sample), "release_id": "scores/bank/residual/0", "exponent": 0})
    lie = Residual(round=0, release=said)
    with pytest.raises(PeerError, match="nobody sends residuals"):
        node.role.step(state, Received("bank", lie))


def test_the_distance_is_that_of_the_method():
    private = prediction_of(manifest(method=PrivateModel()))
    assert private.distance == 0.0
    descent = prediction_of(manifest())
    assert descent.distance == 2 * descent.weight_norm == 2 * manifest().method.passive.weight_norm


@pytest.mark.parametrize("there", [(), ("telco",)])
def test_a_party_that_was_away_in_the_training_can_be_scored_with(there):
    _, models = trained(method=PrivateModel(columns_max=8))
    known = {party: models["bank"].score_regressions[party] for party in there}
    federation = prediction(changed(models, "bank", score_regressions=known))
    theta = federation.simulate().nodes["bank"].state.trained.rounds.theta
    assert np.isfinite(theta).all()


def test_nobody_can_be_left_out_of_a_run_that_waits():
    _, models = trained()
    federation = prediction(models)
    federation.simulate()
    node = federation.node("bank")
    node.open()
    state = replace(node.state.trained, round=0, is_done=False)
    resume = Resume(round=0, absent=("shop", "telco"))
    with pytest.raises(PeerError, match="nobody may be left out"):
        node.role.step(state, Received("coordinator", resume))


def test_the_active_party_takes_part_whatever_its_own_budget_is():
    _, models = trained()
    poor = policy(run_epsilon_max=1e-3, lifetime=Budget(epsilon=1.2, delta=0.01))
    federation = prediction(models, policies={"bank": poor})
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    strict = {"bank": policy(exact_scoring=False, guarantees=("sound",))}
    federation = prediction(models, policies=strict, **EXACT)
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
