"""What an honest party sends is no flood: the plan limits it, and nobody is blamed for it."""

from __future__ import annotations

import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Received
from hdpvfl_mq.node import allowance
from hdpvfl_mq.runtime.simulation import Faults
from parties.active import share
from parties.phases import Training
from scripts import verify_journal
from tests.evidence import evidence_of, write_run
from tests.federation import Federation, manifest
from tests.samples import sample

SHORT = Faults(delay_s=0.05)
AWAY = Faults(delay_s=0.05, absences=(("shop", 1.2, 7.2),))


def late_run(**options):
    """A run in which shop is away once, and the states of bank in it."""
    federation = Federation(
        manifest(epochs=60, absence="last", absent_after_s=2.0, rounds_ahead=4, **options)
    )
    seen = []
    federation.operators["bank"] = lambda node: seen.append((node.role, node.state))
    simulation = federation.simulate(faults=AWAY)
    return federation, simulation, seen


def test_shares_of_a_party_that_was_away_do_not_count_against_it(monkeypatch):
    """Bug: four late shares of 16 MiB ended the run and named the party that had come back."""
    counted = []
    honestly = allowance.Allowance.note_taken

    def noted(self, party, message, size, *, is_moved):
        counted.append((message.kind, is_moved))
        honestly(self, party, message, size, is_moved=is_moved)

    monkeypatch.setattr(allowance.Allowance, "note_taken", noted)
    federation, simulation, _ = late_run()
    assert set(federation.outcomes.values()) == {"completed"}
    trained = simulation.nodes["bank"].state.trained
    assert trained.late["shop"] > 0, "no share was late: the test shows nothing"
    assert ("score_share", False) not in counted


def test_a_share_of_a_round_that_is_over_is_refused_unless_its_sender_was_left_out():
    """Bug: such shares were recorded without end, and their parts stored."""
    _, _, seen = late_run()
    role, state = next(
        (role, state) for role, state in seen if isinstance(state, Training) and state.late
    )
    again = sample("score_share").model_copy(update={"round": state.late["shop"]})
    with pytest.raises(PeerError, match="which is over"):
        share(role.own, state, Received("shop", again))
    never_away = sample("score_share").model_copy(update={"round": 0})
    with pytest.raises(PeerError, match="which is over"):
        share(role.own, state, Received("telco", never_away))


def test_a_party_that_was_away_pays_later_and_no_verifier_takes_that_for_a_lie(tmp_path):
    """Bug: the second verifier compared the costs of one round, not of all up to it."""
    federation, _, _ = late_run()
    evidence = evidence_of(federation)
    assert [verdict.found for verdict in audit(evidence) if verdict.found] == []
    assert verify_journal.verify(write_run(evidence, tmp_path)) == {}


@pytest.mark.parametrize(
    "limits", [{"MAX": 6000}, {"ALL": 10_000, "EACH": 3000}], ids=["of one", "of all"]
)
def test_reports_of_an_honest_run_do_not_count(monkeypatch, limits):
    """Bug: long runs, and large ones that members had filled up, ended and named honest parties."""
    for name, limit in limits.items():
        monkeypatch.setattr(allowance, f"IDLE_BYTES_{name}", limit)
    federation = Federation(manifest(epochs=40, rounds_ahead=4))
    simulation = federation.simulate(faults=SHORT)
    assert simulation.nodes["bank"].state.trained.round >= 40
    assert set(federation.outcomes.values()) == {"completed"}
