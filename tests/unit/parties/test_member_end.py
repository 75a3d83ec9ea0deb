"""The end of a run, as a party sees it."""

from __future__ import annotations

from hdpvfl_mq.machine import Received
from parties.phases import Closed
from schemas.ids import COORDINATOR
from schemas.messages import RunClosed
from tests.federation import Federation, manifest, tables


def test_a_second_end_takes_nothing_away():
    """A coordinator that closes a run twice must not cost a party what it has trained."""
    federation = Federation(manifest(epochs=1), tables(44))
    simulation = federation.simulate()
    for party in federation.parties:
        node = simulation.nodes[party]
        again = Received(COORDINATOR, RunClosed(outcome="deadline", reason="made up"))
        after, effects = node.role.step(node.state, again)
        assert isinstance(after, Closed)
        assert after is node.state
        assert after.trained is not None
        assert effects == ()
