"""A coordinator withholds its orders from one party while the others train without it.

The residuals of the honest active party are then out of place at that party, which must not blame
it: the reason says that the coordinator has told the two different orders, or that one says so.
"""

from __future__ import annotations

import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.machine import Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.simulation import Faults
from schemas.ids import COORDINATOR
from tests.evidence import evidence_of
from tests.federation import LyingFederation, manifest, tables

ORDERS = ("round_plan", "resume", "pause")  # who hears no pause does not say that it is there


class Withholds(Node):
    """Tells shop a number of its orders, and no more."""

    told = 0

    def _perform(self, effect, parent):
        if not isinstance(effect, Send) or effect.message.kind not in ORDERS:
            return super()._perform(effect, parent)
        if self.told > 0:
            self.told -= 1
            return super()._perform(effect, parent)
        others = tuple(party for party in effect.to if party != "shop")
        return super()._perform(Send(others, effect.message), parent)


class WithholdsAll(Withholds):
    """Tells shop of no round at all."""


class WithholdsLater(Withholds):
    """Tells shop of the first rounds only."""

    told = 1


@pytest.mark.parametrize(
    ("liar", "absence"),
    [
        (WithholdsAll, "last"),
        (WithholdsLater, "nothing"),
        pytest.param(WithholdsAll, "nothing", marks=pytest.mark.slow),
        pytest.param(WithholdsLater, "last", marks=pytest.mark.slow),
    ],
)
def test_a_party_without_orders_does_not_blame_the_active_party(liar, absence):
    """Bug: it withdrew because of "what the protocol does not allow" of an honest party."""
    brief = manifest(
        epochs=20, absence=absence, absent_after_s=3.0, deadline_s=90.0, rounds_ahead=2
    )
    made = LyingFederation(brief, tables(44), liars={COORDINATOR: liar})
    simulation = made.simulate(faults=Faults(delay_s=0.5))  # slow enough to notice in time
    reason = simulation.nodes["shop"].state.reason
    assert "bank reports orders from the coordinator that differ" in reason
    for verdict in audit(evidence_of(made, only=("bank", "shop", "telco"))):
        assert verdict.passed or "coordinator" in verdict.found, verdict


def test_a_party_that_may_not_be_left_out_names_the_active_party():
    """With `wait`, no honest active party sends two residuals before a party's first plan."""
    brief = manifest(absence="wait", absent_after_s=2.0, deadline_s=30.0)
    made = LyingFederation(brief, tables(44), liars={COORDINATOR: WithholdsAll})
    simulation = made.simulate()
    assert simulation.nodes["shop"].outcome == "deadline"
