"""An active party that cheats in entity resolution: noticed, unanswered, the end of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.psi.ot_oprf import OtAsker
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.wire.codec import decode_body, decode_header
from schemas.messages import AlignBlock
from schemas.records import EnvelopeSent
from tests.federation import Federation
from tests.simulation.test_resolution import federation_of, spec


class ShiftingAsker(OtAsker):
    """Turns a bit in twelve columns of its query, to read secret bits off the answer."""

    def prepare(self, bucket, elements):
        honest = super().prepare(bucket, elements)
        codewords = honest.codewords.copy()
        codewords[:12, -1] ^= 1
        return replace(honest, codewords=codewords)


def messages_sent(federation: Federation, party: str):
    """Everything that a party has sent."""
    for record, _ in walk(federation.journals[party].records()):
        for effect in record.effects:
            if isinstance(effect, EnvelopeSent):
                yield decode_body(decode_header(effect.frames), effect.frames)


def stages_sent(federation: Federation, party: str) -> set[str]:
    """The stages of the blocks that a party has sent."""
    messages = messages_sent(federation, party)
    return {message.stage for message in messages if isinstance(message, AlignBlock)}


@pytest.mark.parametrize("crashes", [0, 6])
def test_a_query_that_is_not_of_codewords_ends_the_run_unanswered(crashes, monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.psi.open.OtAsker", ShiftingAsker)
    federation = federation_of(2, alignment=spec(method="oprf"))
    faults = Faults(crashes=crashes, crash_window_s=1.0)
    simulation = federation.simulate(faults=faults)
    assert set(federation.outcomes.values()) == {"withdrawn"}
    noticed = 0
    for party in ("p1", "p2"):
        assert stages_sent(federation, party) <= {"hello", "choose"}
        reason = simulation.nodes[party].state.reason
        noticed += "bank sent a query that is not of codewords" in reason
    assert noticed >= 1
    closed = simulation.nodes["coordinator"].state.reason
    assert "the active party's query in entity resolution" in closed
    assert not any(entry.kind == "spend" for e in federation.spent().values() for _, entry in e)
