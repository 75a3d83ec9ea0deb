"""Recorded runs replay to the byte with today's code, and pass both verifiers."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.app.refold import RecordedStore
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.narrative import differences
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.chain import DivergenceError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.codec import decode_header
from schemas.records import EnvelopeSent
from tests.evidence import edited, relinked, resigned, with_rows
from tests.golden.recorded import JOURNALS, RUNS, federation, read, recorded_evidence
from tests.unit.audit.test_audit import independent, independent_exit

# The message of shop that is forged, by recording; in the others it is its last scores.
FORGED = {"oprf": "align_block", "scoring": "score_reply"}


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


@pytest.mark.parametrize("name", RUNS)
def test_both_verifiers_notice_a_recording_that_its_owner_forged(name, tmp_path):
    """Shop claims that it sent another array, and signs its journal again."""
    evidence, key = recorded_evidence(name), federation(name).keys["shop"]
    steps = [record for record, _ in chain.walk(evidence.transcripts["shop"].rows)]
    kind = FORGED.get(name, "score_share")
    at = max(step.index for step in steps if any(_says(e, kind) for e in step.effects))
    forged = [_otherwise(e, key) if _says(e, kind) else e for e in steps[at].effects]
    steps[at] = edited(steps[at], effects=tuple(forged))
    tampered = with_rows(evidence, "shop", relinked(steps, key))
    verdicts = audit(tampered)
    assert 5 in {v.number for v in verdicts if not v.passed}
    assert independent_exit(independent(tampered, tmp_path)) == exit_code(verdicts) == 5


def _says(effect, kind: str) -> bool:
    return isinstance(effect, EnvelopeSent) and decode_header(effect.frames).kind == kind


def _otherwise(sent: EnvelopeSent, key: SigningKey) -> EnvelopeSent:
    *frames, array = sent.frames
    return EnvelopeSent(frames=resigned((*frames, array[:-1] + bytes([array[-1] ^ 1])), key))


@pytest.mark.parametrize("name", RUNS)
def test_another_secret_does_not_replay(name):
    def change(made):
        made._secret = b"another"

    with pytest.raises(IntegrityError):
        replayed(name, "shop", change)


@pytest.mark.parametrize("name", RUNS)
def test_other_data_do_not_replay_and_the_difference_is_named(name):
    def change(made):
        data = made.data["shop"]
        X: FloatVector = data.X.copy()
        X[0] *= -1.0
        made.data = {**made.data, "shop": type(data)(**{**vars(data), "X": X})}

    with pytest.raises(DivergenceError) as caught:
        replayed(name, "shop", change)
    broken = caught.value
    found = differences(broken.recorded, broken.recomputed, broken.index)
    assert any("values" in line for line in found), found
