"""Stopping early by a rule that sees released values only: everybody stops after the same round."""

from __future__ import annotations

from schemas.methods import EarlyStop
from tests.federation import Federation, manifest


def test_all_parties_stop_after_the_same_epoch_and_spend_less():
    early = Federation(manifest(epochs=40, early_stop=EarlyStop(patience=1, tolerance=0.5)))
    simulation = early.simulate()
    assert set(early.outcomes.values()) == {"completed"}
    rounds = {simulation.nodes[p].state.trained.round for p in early.parties}
    assert len(rounds) == 1
    assert 6 <= rounds.pop() < 120
    released = {p: sum("spend" in str(e) for _, e in early.spent()[p]) for p in early.parties}
    assert all(count < 120 for count in released.values())


def test_without_the_rule_every_round_runs():
    federation = Federation(manifest(epochs=5))
    simulation = federation.simulate()
    assert simulation.nodes["bank"].state.trained.round == 15
