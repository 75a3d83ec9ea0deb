"""Recorded runs replay to the byte with today's code, and pass both verifiers."""

from __future__ import annotations

import pytest

from hdpvfl_mq.app.refold import RecordedStore
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.narrative import differences
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal.chain import DivergenceError
from hdpvfl_mq.node.node import Node
from tests.golden.recorded import JOURNALS, RUNS, federation, read, recorded_evidence
from tests.unit.audit.test_audit import independent


def replayed(name: str, party: str, change=lambda made: None) -> Node:
    made = federation(name)
    change(made)
    live = made.node(party)
    store = RecordedStore(read(name)[party])
    node = Node(live.role, live.identity, made.contacts(party), journal=store)
    node.open()
    return node


@pytest.mark.parametrize(("name", "party"), JOURNALS)
def test_a_recording_replays_to_the_byte(name, party):
    assert replayed(name, party).outcome == "completed"


@pytest.mark.parametrize("name", RUNS)
def test_a_recording_passes_both_verifiers(name, tmp_path):
    evidence = recorded_evidence(name)
    verdicts = audit(evidence)
    assert exit_code(verdicts) == 0, [v for v in verdicts if not v.passed]
    assert independent(evidence, tmp_path) == {}


def test_another_secret_does_not_replay():
    def change(made):
        made._secret = b"another"

    with pytest.raises(IntegrityError):
        replayed("sound", "shop", change)


def test_other_data_do_not_replay_and_the_difference_is_named():
    def change(made):
        data = made.data["shop"]
        X: FloatVector = data.X.copy()
        X[0] *= -1.0
        made.data = {**made.data, "shop": type(data)(**{**vars(data), "X": X})}

    with pytest.raises(DivergenceError) as caught:
        replayed("sound", "shop", change)
    broken = caught.value
    found = differences(broken.recorded, broken.recomputed, broken.index)
    assert any("values" in line for line in found), found
