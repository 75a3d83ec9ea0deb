"""A training and the prediction that follows it, for tests."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from functools import cache

from hdpvfl_mq.methods import prediction_of
from parties.assets import TrainedModel
from parties.rounds.shares_fit import PrivateActive
from schemas.privacy import Budget
from tests.federation import Federation, manifest, policy, tables


def regressions(state):
    rounds = state.trained.rounds
    return rounds.score_regressions if isinstance(rounds, PrivateActive) else {}


@cache
def trained(**changes) -> tuple[Federation, dict[str, TrainedModel]]:
    """A run that tests share; who adds to its ledgers takes copies of them."""
    federation = Federation(manifest(**changes), tables(300))
    simulation = federation.simulate()
    models = {
        party: TrainedModel(
            manifest=federation.manifest,
            data=federation.data[party].settings,
            rows=simulation.nodes[party].state.trained.setup.plan.rows,
            dataset="people",
            weights=weights,
            score_regressions=regressions(simulation.nodes[party].state),
        )
        for party, weights in federation.weights(simulation).items()
    }
    return federation, models


def ledgers_of(federation: Federation) -> dict[str, sqlite3.Connection]:
    """Copies of its ledgers, for a run that comes later."""
    copies = {p: sqlite3.connect(":memory:", isolation_level=None) for p in federation.ledgers}
    for party, copy in copies.items():
        federation.ledgers[party].backup(copy)
    return copies


def prediction(models, policies=None, rows=80, ledgers=None, **changes) -> Federation:
    model = models["bank"]
    settings = {
        "run": "scores",
        "method": prediction_of(model.manifest),
        "loss": model.manifest.loss,
        "budget": Budget(epsilon=20.0, delta=0.01),
    }
    federation = Federation(
        manifest(**{**settings, **changes}),
        tables(rows, seed=11),
        policies={p: policy(exact_scoring=True) for p in models} | (policies or {}),
    )
    federation.models = models
    if ledgers is not None:
        federation.ledgers = ledgers
    return federation


EXACT = {"guarantee": "none", "budget": None}


def refused(federation: Federation) -> str:
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}
    assert not any(simulation.nodes[p].state.trained for p in federation.parties)
    return simulation.nodes["coordinator"].state.reason


def changed(models, party, **changes):
    return {**models, party: replace(models[party], **changes)}
