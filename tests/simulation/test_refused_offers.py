"""A policy or the labels forbid a run that is offered: refused before any block or release."""

from __future__ import annotations

import pytest

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.runtime.process import EXIT_BY_OUTCOME
from schemas.config import AlignmentSpec, IdRules
from schemas.privacy import Budget
from tests.federation import Federation, manifest, policy, tables


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


def test_labels_outside_the_loss_are_refused_without_showing_them():
    parts = tables()
    bank = parts["bank"]
    y = bank["y"].copy()
    y[3] = 31337.0
    parts["bank"] = Table.of({**{n: bank[n] for n in bank.names}, "y": y})
    federation = Federation(tables=parts)
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}
    for party, node in simulation.nodes.items():
        assert "31337" not in node.state.reason
        assert "label" in node.state.reason, party
