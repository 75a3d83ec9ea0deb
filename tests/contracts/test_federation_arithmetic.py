"""The rounds of a real federation are the plain arithmetic, bit for bit, for all losses.

Together with the comparison in tests/unit/glm (the same arithmetic, run to convergence, equals
scikit-learn and statsmodels) this carries the equality over to the federation itself: roles,
messages, journals and ledgers change no bit of the result.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.glm.penalties import project
from parties.common_rows import block_of, response_of
from schemas.methods import ActiveSide, PassiveSide
from schemas.model import LossSpec, PenaltySpec
from tests.federation import Federation, manifest, tables

pytestmark = pytest.mark.seconds

LOSSES = {name: FAMILIES[name].label_kind for name in FAMILIES}
PENALTIES = ("none", "l2", "l1", "elastic_net")
EPOCHS = 2  # of three batches; equality is bit by bit, so more of them show no more


def labelled(kind: str) -> dict[str, Table]:
    """The test tables with labels of a kind."""
    found, dice = tables(rows=30), np.random.default_rng(11)
    bank = found["bank"]
    rows = bank.rows
    y = {
        "binary": bank["y"],
        "real": dice.normal(size=rows),
        "count": dice.poisson(1.5, size=rows).astype(float),
        "positive": dice.gamma(2.0, 0.5, size=rows) + 0.05,
    }[kind]
    columns = {name: bank[name] for name in bank.names if name != "y"}
    return {**found, "bank": Table.of({**columns, "y": y})}


def plain_rounds(federation: Federation, simulation) -> dict[str, np.ndarray]:
    """What the same blocks give without any federation around them."""
    states = {p: simulation.nodes[p].state for p in federation.parties}
    plan = states["bank"].trained.setup.plan
    own = {p: simulation.nodes[p].role.own for p in federation.parties}
    blocks = {p: block_of(own[p], state.trained.setup) for p, state in states.items()}
    response = response_of(own["bank"], states["bank"].trained.setup)
    w = {p: b.start_weights(plan.family.start_theta) for p, b in blocks.items()}
    for round_ in range(plan.rounds):
        rows = plan.schedule.batch(round_)
        received = sum(blocks[p].scores(rows, w[p]).expose() for p in ("shop", "telco"))
        h = response.residual(rows, blocks["bank"].scores(rows, w["bank"]), received).expose()
        for party, block in blocks.items():
            eta = plan.eta("active" if party == "bank" else "passive", round_)
            stepped = plan.penalty.step(w[party], block.gradient(rows, h), eta, free=block.free)
            w[party] = project(stepped, 50.0)
    return w


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_federation_computes_what_plain_arithmetic_does(loss, penalty):
    strength = {} if penalty == "none" else {"strength": 0.01}
    federation = Federation(
        manifest(
            guarantee="none",
            budget=None,
            loss=LossSpec(name=loss),
            penalty=PenaltySpec(name=penalty, **strength),
            epochs=EPOCHS,
            batch_rows=11,
            step_decay=0.1,
            active=ActiveSide(step_size=0.05, weight_norm=50.0),
            passive=PassiveSide(step_size=0.04, weight_norm=50.0),
        ),
        labelled(LOSSES[loss]),
    )
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    found, expected = federation.weights(simulation), plain_rounds(federation, simulation)
    for party in federation.parties:
        np.testing.assert_array_equal(found[party], expected[party])
        assert np.abs(found[party]).max() > 0.0


def test_every_loss_is_carried_over():
    assert set(LOSSES) == set(FAMILIES)
