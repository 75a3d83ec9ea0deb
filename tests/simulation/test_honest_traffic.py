"""What an honest party sends is no flood: the plan limits it, and nobody is blamed for it."""

from __future__ import annotations

from dataclasses import dataclass, field

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
AWAY = Faults(delay_s=0.05, absences=(("shop", 1.0, 9.0),))


@dataclass
class Late:
    """A run in which shop is away once, the states of bank in it, and what mailboxes took."""

    federation: Federation
    states: list = field(default_factory=list)
    taken: list = field(default_factory=list)  # kind, and whether it moved its receiver


@pytest.fixture(scope="module")
def late_run():
    federation = Federation(manifest(epochs=20, absence="last", absent_after_s=2.0, rounds_ahead=4))
    late = Late(federation)
    federation.operators["bank"] = lambda node: late.states.append((node.role, node.state))
    honestly = allowance.Allowance.note_taken

    def noted(self, party, message, size, *, is_moved):
        late.taken.append((message.kind, is_moved))
        honestly(self, party, message, size, is_moved=is_moved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allowance.Allowance, "note_taken", noted)
        federation.simulate(faults=AWAY)
    return late


def test_shares_of_a_party_that_was_away_do_not_count_against_it(late_run):
    """Bug: four late shares of 16 MiB ended the run and named the party that had come back."""
    assert set(late_run.federation.outcomes.values()) == {"completed"}
    _, ended = late_run.states[-1]
    assert ended.trained.late["shop"] > 0, "no share was late: the test shows nothing"
    assert ("score_share", True) in late_run.taken
    assert ("score_share", False) not in late_run.taken


def test_a_share_of_a_round_that_is_over_is_refused_unless_its_sender_was_left_out(late_run):
    """Bug: such shares were recorded without end, and their parts stored."""
    role, state = next(
        (role, state)
        for role, state in late_run.states
        if isinstance(state, Training) and state.late
    )
    again = sample("score_share").model_copy(update={"round": state.late["shop"]})
    with pytest.raises(PeerError, match="which is over"):
        share(role.own, state, Received("shop", again))
    never_away = sample("score_share").model_copy(update={"round": 0})
    with pytest.raises(PeerError, match="which is over"):
        share(role.own, state, Received("telco", never_away))


def test_a_party_that_was_away_pays_later_and_no_verifier_takes_that_for_a_lie(late_run, tmp_path):
    """Bug: the second verifier compared the costs of one round, not of all up to it."""
    evidence = evidence_of(late_run.federation)
    assert [verdict.found for verdict in audit(evidence) if verdict.found] == []
    assert verify_journal.verify(write_run(evidence, tmp_path)) == {}


@pytest.mark.parametrize(
    "limits", [{"MAX": 3000}, {"ALL": 5000, "EACH": 1500}], ids=["of one", "of all"]
)
def test_reports_of_an_honest_run_do_not_count(monkeypatch, limits):
    """Bug: long runs, and large ones that members had filled up, ended and named honest parties."""
    for name, limit in limits.items():
        monkeypatch.setattr(allowance, f"IDLE_BYTES_{name}", limit)
    federation = Federation(manifest(epochs=20, rounds_ahead=4))
    simulation = federation.simulate(faults=SHORT)
    assert simulation.nodes["bank"].state.trained.round >= 20
    assert set(federation.outcomes.values()) == {"completed"}
