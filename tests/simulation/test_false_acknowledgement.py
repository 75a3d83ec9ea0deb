"""A peer that says it saw another envelope than it was sent: refused, recorded, blamed alone."""

from __future__ import annotations

import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.node import Node
from schemas.envelope import Delivery
from schemas.records import Acknowledged, TurnedAway
from tests.evidence import evidence_of
from tests.federation import Federation, LyingFederation, manifest, tables

BRIEF = {"batch_rows": 20, "deadline_s": 20.0, "absent_after_s": 2.0}


class FalseMailbox(Mailbox):
    """Names another envelope of the bank's, once it has seen three."""

    def _delivery(self, party, sequence):
        honest = super()._delivery(party, sequence)
        if party != "bank" or honest.ack < 3:
            return honest
        return Delivery(party=party, sequence=sequence, ack=honest.ack, seen=bytes(32))


class FalseWitness(Node):
    """Its mailbox lies from the first envelope on."""

    def start(self):
        self.mailbox.__class__ = FalseMailbox
        return super().start()


@pytest.fixture(scope="module")
def lying():
    federation = LyingFederation(manifest(**BRIEF), tables(44), liars={"telco": FalseWitness})
    return federation, federation.simulate()


def notes(federation: Federation, party: str, kind: type) -> list:
    records = [record for record, _ in walk(federation.journals[party].records())]
    return [record.input for record in records if isinstance(record.input, kind)]


def test_it_is_refused_on_arrival_and_recorded_in_the_chain(lying):
    reasons = {note.reason for note in notes(lying[0], "bank", TurnedAway)}
    assert any("telco acknowledges an envelope" in reason for reason in reasons)


def test_the_victims_journal_stays_without_a_finding(lying):
    """Bug: the honest journal contradicted itself, and the liar's own audited clean."""
    for party in ("bank", "shop"):
        assert exit_code(audit(evidence_of(lying[0], only=(party,)))) == 0


def test_the_others_hear_for_whom_they_wait_and_the_run_ends(lying):
    assert set(lying[0].outcomes.values()) <= {"deadline", "mismatch", "withdrawn"}
    assert "telco" in lying[1].nodes["shop"].state.reason


def test_bare_acknowledgements_are_in_the_chain_of_an_honest_run():
    federation = Federation(manifest(batch_rows=20), tables(44))
    federation.simulate()
    assert any(notes(federation, party, Acknowledged) for party in federation.journals)
    assert exit_code(audit(evidence_of(federation))) == 0
