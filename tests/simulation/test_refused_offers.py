"""A policy or the settings forbid a run that is offered: refused before any block or release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import EXIT_BY_OUTCOME, DataError, PeerError
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.machine import Effect, Received, Send
from parties.assets import Assets
from parties.party import Party
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.messages import RunAccept, RunOffer, RunRefuse
from schemas.methods import ActiveSide, Descent, PassiveSide, PrivateModel
from schemas.model import LossSpec
from schemas.privacy import Budget, LedgerHead
from schemas.records import LedgerStanding, Started
from tests.federation import Federation, descent, manifest, policy, tables

NO_HEAD = LedgerHead(sequence=0, digest=bytes(32))


def alignment(**changes) -> AlignmentSpec:
    return AlignmentSpec(ids=IdRules(kind="integer"), rows_min=10, **changes)


REFUSED = {
    "epsilon above the policy": (
        {"run_epsilon_max": 0.5},
        {},
        ("policy.run_epsilon_max is 0.5", "lower it"),
    ),
    "delta above the policy": (
        {"lifetime": {"epsilon": 50.0, "delta": 1e-6}},
        {},
        ("policy.lifetime.delta", "lower it"),
    ),
    "a guarantee the policy does not name": (
        {"guarantees": ("sound",)},
        {"guarantee": "none", "budget": None},
        ("policy.guarantees", "name it there to allow it"),
    ),
    "a lifetime that is used up": (
        {"lifetime": {"epsilon": 0.1, "delta": 0.01}},
        {},
        ("policy.lifetime", "hdpvfl ledger show"),
    ),
    "a peer the policy does not name": (
        {"peers": ("bank",)},
        {},
        ("policy.peers does not allow telco",),
    ),
    "a method of entity resolution the policy does not name": (
        {"alignment_methods": ("ecdh",)},
        {"alignment": alignment(method="oprf")},
        ("policy.alignment_methods allows ecdh", "set it to ecdh"),
    ),
    "a method of entity resolution that may become one the policy does not name": (
        {"alignment_methods": ("oprf",)},
        {"alignment": alignment(method="auto")},
        ("policy.alignment_methods allows oprf", "is auto"),
    ),
    "too few rows for the policy": (
        {"rows_min": 1000},
        {},
        ("policy.rows_min is 1000", "raise the latter"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_against_the_policy_is_refused_before_any_block_or_release(name):
    rules, changes, words = REFUSED[name]
    federation = Federation(manifest(**changes), policies={"shop": policy(**_budgets(rules))})
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}
    assert EXIT_BY_OUTCOME["refused"] == 3
    for node in simulation.nodes.values():
        for word in words:
            assert word in node.state.reason
    for party, entries in federation.spent().items():
        assert [entry.kind for _, entry in entries] == ["secret", "cap"], party
    for journal in federation.journals.values():
        assert not any(b"align_block" in stored for _, stored, _ in journal.records())


def test_a_policy_that_names_the_method_takes_part():
    settings = manifest(alignment=alignment(method="ecdh"))
    federation = Federation(settings, policies={"shop": policy(alignment_methods=("ecdh",))})
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}


def _budgets(rules: dict) -> dict:
    return {k: Budget(**v) if k == "lifetime" else v for k, v in rules.items()}


BEYOND = {
    "an epsilon beyond bounded noise": (60.0, PrivateModel(noise="bounded")),
    "an epsilon below bounded noise": (1e-7, PrivateModel(noise="bounded")),
    "an epsilon of the paper's formula that is next to nothing": (1e-300, descent()),
}


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("name", BEYOND)
def test_numbers_that_nobody_can_plan_are_refused_and_stop_no_party(name, party):
    """Bug: one offer of a coordinator ended the process of a party whose policy allows the rest."""
    epsilon, method = BEYOND[name]
    guarantee = "paper" if isinstance(method, Descent) else "sound"
    budget = Budget(epsilon=epsilon, delta=0.01)
    wanted = manifest(method=method, budget=budget, guarantee=guarantee)
    rules = {"noises": ("gaussian", "bounded"), "pure_slots": (5.0,), "run_epsilon_max": 100.0}
    own = Federation(policies={party: policy(**rules)}).assets(party)
    role = Party(own)
    standing = LedgerStanding(head=NO_HEAD, mu2_units_free=2**60, slots_free=(2**50,))
    state, _ = role.step(role.initial(), Started(epoch=1, standing=standing))
    _, (refusal, _) = role.step(state, Received(COORDINATOR, RunOffer(manifest=wanted)))
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, RunRefuse)
    assert "the privacy argument refuses these settings" in refusal.message.rule


LABELS = {
    "binary": ([0.0, 1.0], [1.0, 1.0], [-1.0, 1.0]),
    "count": ([0.0, 1.0], [0.0, 17.0], [3.0, 1e9]),
    "positive": ([0.5, 1.0], [1.0, 2.0], [1e-9, 1e9]),
    "real": ([0.0, 1.0], [0.5, 2.0], [-7.0, 3.5]),
}


def offered(loss: LossSpec) -> RunManifest:
    """Steps that are short enough for every loss."""
    active = ActiveSide(step_size=1e-3, weight_norm=5.0)
    passive = PassiveSide(step_size=1e-3, weight_norm=2.0, received_clip=1.0)
    return manifest(loss=loss, method=Descent(active=active, passive=passive))


def answer(bank: Assets, loss: LossSpec) -> tuple[Effect, ...]:
    """What the active party says to the offer of a loss."""
    role, standing = Party(bank), LedgerStanding(head=NO_HEAD, mu2_units_free=2**50)
    state, _ = role.step(role.initial(), Started(epoch=1, standing=standing))
    _, effects = role.step(state, Received(COORDINATOR, RunOffer(manifest=offered(loss))))
    return effects


@pytest.mark.parametrize("kind", LABELS)
def test_offers_of_one_loss_after_the_other_tell_nothing_about_the_labels(kind):
    """Bug: a refusal said whether the labels fit the loss that the coordinator chose."""
    own = Federation().assets("bank")
    settings = DataSettings(label_column="y", label_kind=kind)
    answers = []
    for values in LABELS[kind]:
        y = np.resize(np.array(values), own.data.rows)
        bank = replace(own, data=replace(own.data, y=y, settings=settings))
        answers.append([answer(bank, LossSpec(name=name)) for name in FAMILIES])
    assert answers[0] == answers[1] == answers[2]
    said = (e.message for effects in answers[0] for e in effects if isinstance(e, Send))
    kinds = {type(message) for message in said}
    assert kinds == {RunAccept, RunRefuse}


def test_a_loss_for_labels_of_another_kind_is_refused_by_the_declared_one():
    federation = Federation(offered(LossSpec(name="poisson")))
    data = federation.data["bank"]
    settings = DataSettings(label_column="y", label_kind="real")
    federation.data = {**federation.data, "bank": replace(data, settings=settings)}
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}
    for node in simulation.nodes.values():
        assert "data.label_kind is real, poisson takes count labels" in node.state.reason


def test_a_label_of_another_kind_than_declared_stops_its_party_before_it_speaks():
    parts = tables()
    bank = parts["bank"]
    y = bank["y"].copy()
    y[3] = 31337.0
    parts["bank"] = Table.of({**{n: bank[n] for n in bank.names}, "y": y})
    with pytest.raises(DataError, match="column 'y', row 4: the label must be 0 or 1") as stopped:
        Federation(tables=parts)
    assert "31337" not in str(stopped.value)


def test_a_party_that_has_answered_hears_no_second_offer():
    """Offers are limited to one a run, whether the first was refused or accepted."""
    bank = Federation().assets("bank")
    bank = replace(bank, data=replace(bank.data, settings=DataSettings(label_column="y")))
    role, standing = Party(bank), LedgerStanding(head=NO_HEAD, mu2_units_free=2**50)
    for first, answered in (("gamma", RunRefuse), ("logistic", RunAccept)):
        state, _ = role.step(role.initial(), Started(epoch=1, standing=standing))
        offer = RunOffer(manifest=offered(LossSpec(name=first)))
        state, effects = role.step(state, Received(COORDINATOR, offer))
        assert answered in {type(e.message) for e in effects if isinstance(e, Send)}
        again = RunOffer(manifest=offered(LossSpec(name="huber")))
        if answered is RunRefuse:  # it has left: what comes is ignored
            assert role.step(state, Received(COORDINATOR, again)) == (state, ())
        else:
            with pytest.raises(PeerError):
                role.step(state, Received(COORDINATOR, again))


def test_a_run_with_a_party_whose_key_is_unknown_is_refused():
    """Bug: a policy without `peers` accepted it, and the first message to that party was fatal.

    Found by `make fuzz`, seed 1012: a coordinator can name anybody.
    """
    federation = Federation()
    role = Party(federation.assets("bank"))
    standing = LedgerStanding(head=NO_HEAD, mu2_units_free=2**50)
    state, _ = role.step(role.initial(), Started(epoch=1, standing=standing))
    fields = {**dict(federation.manifest), "passive_parties": ("shop", "stranger")}
    state, effects = role.step(
        state, Received(COORDINATOR, RunOffer(manifest=RunManifest(**fields)))
    )
    said = [e.message for e in effects if isinstance(e, Send)]
    assert said == [RunRefuse(rule="settings: this party has no key of stranger")]
