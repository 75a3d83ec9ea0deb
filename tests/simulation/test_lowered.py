"""Runs in one version of the protocol, and a run that somebody has lowered."""

from __future__ import annotations

import pytest

from hdpvfl_mq.journal import chain
from hdpvfl_mq.wire.codec import decode_header
from parties.lowered import is_needlessly_low
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.records import EnvelopeSent
from tests.federation import Federation, manifest


def versions(federation: Federation) -> set[int]:
    """The versions of all envelopes that anybody has sent."""
    found = set()
    for journal in federation.journals.values():
        for index, stored, _ in journal.records():
            for effect in chain.decode(stored, index).effects:
                if isinstance(effect, EnvelopeSent):
                    found.add(decode_header(effect.frames).version)
    return found


@pytest.mark.parametrize("wire", [1, PROTOCOL_VERSION])
def test_a_run_is_held_in_the_version_of_its_manifest(wire):
    federation = Federation(manifest(wire=wire))
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    assert versions(federation) == {wire}


@pytest.mark.parametrize("old", ["bank", "shop", "telco"])
def test_one_older_party_is_reason_enough_for_an_older_version(old):
    federation = Federation(manifest(epochs=1))
    federation.speaks = {p: 2 for p in federation.parties if p != old}
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}


def test_a_run_that_is_lowered_without_reason_ends_before_anything_is_released():
    federation = Federation(manifest(epochs=1))
    federation.speaks = dict.fromkeys(federation.parties, 2)
    nodes = federation.simulate().nodes
    assert set(federation.outcomes.values()) == {"mismatch"}
    for party in federation.parties:
        assert {entry.kind for _, entry in federation.spent()[party]} == {"secret", "cap"}
    assert "older version of the protocol" in nodes[COORDINATOR].state.reason
    assert "stated too old versions" in nodes["bank"].state.reason


def test_a_lowered_run_keeps_no_alignment_from_an_earlier_one():
    first = Federation(manifest(epochs=1))
    kept = {p: (n.state.trained.setup.alignment,) for p, n in _parties(first)}
    again = Federation(manifest(epochs=1, run="again"))
    again.kept = kept
    again.simulate()
    assert set(again.outcomes.values()) == {"completed"}
    lowered = Federation(manifest(epochs=1, run="again"))
    lowered.kept, lowered.speaks = kept, dict.fromkeys(lowered.parties, 2)
    lowered.simulate()
    assert set(lowered.outcomes.values()) == {"mismatch"}


def _parties(federation: Federation):
    nodes = federation.simulate().nodes
    return [(p, nodes[p]) for p in federation.parties]


def test_a_party_that_speaks_no_more_than_its_run_has_nothing_to_notice():
    federation = Federation(manifest())
    own = federation.assets("shop")
    marked = {p: bytes(24) + b"hdpvfl+1" for p in federation.parties}
    assert not is_needlessly_low(own, marked)
    federation.speaks["shop"] = 2
    own = federation.assets("shop")
    assert is_needlessly_low(own, marked)
    assert not is_needlessly_low(own, {**marked, "telco": bytes(32)})
