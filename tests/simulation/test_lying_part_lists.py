"""Part lists whose sizes and parts do not fit: the receiver refuses them and stays alive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.audit.reader import read_evidence
from hdpvfl_mq.machine import Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire import parts
from hdpvfl_mq.wire.parts import PartList, Sizes
from schemas import tensor
from schemas.messages import ScoreShare
from scripts import verify_journal
from tests.evidence import evidence_of, write_run
from tests.federation import LyingFederation, manifest, tables
from tests.simulation.greedy import Greedy


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "LARGE_BYTES", 64)
    monkeypatch.setattr(parts, "PART_BYTES", 16)
    monkeypatch.setattr(tensor, "BUFFER_ABOVE", 64)


def longer(true: PartList, earlier: list[PartList]) -> PartList:
    """More bytes than the parts have together."""
    return PartList(Sizes(bytes=17 * len(true), part_bytes=17), true.digests)


def last_too_long(true: PartList, earlier: list[PartList]) -> PartList:
    """Every part but the last has the listed size."""
    return PartList(Sizes(bytes=16 * len(true), part_bytes=16), true.digests)


def stored_before(true: PartList, earlier: list[PartList]) -> PartList:
    """Parts that the receiver has stored for an earlier envelope, now with another size."""
    if not earlier:
        return true
    known = earlier[0].digests
    return PartList(Sizes(bytes=17 * len(known), part_bytes=17), known)


def lying(listed):
    earlier: list[PartList] = []

    class Liar(Node):
        """Its shares list parts of other sizes than it serves."""

        def _perform(self, effect, parent):
            if not (isinstance(effect, Send) and isinstance(effect.message, ScoreShare)):
                return super()._perform(effect, parent)

            class Lying(PartList):
                @classmethod
                def of_array(cls, array):
                    true = PartList.of_array(array)
                    told = listed(true, earlier)
                    earlier.append(true)
                    return told

            with pytest.MonkeyPatch.context() as lying:
                lying.setattr("hdpvfl_mq.wire.codec.PartList", Lying)
                recorded = super()._perform(effect, parent)
            # Its own store has the parts as they are cut, whatever the envelope lists.
            data, true = effect.message.release.tensor.data, earlier[-1]
            self._uncommitted.parts[-1:] = [(true, data)]
            return recorded

    return Liar


@pytest.mark.parametrize("listed", [longer, last_too_long, stored_before])
def test_sizes_that_do_not_fit_the_parts_end_the_run_and_name_the_liar(listed, tmp_path):
    federation = LyingFederation(
        manifest(batch_rows=50), tables(149), liars={"shop": lying(listed)}
    )
    simulation = federation.simulate()
    assert "completed" not in set(federation.outcomes.values())
    assert "shop" in simulation.nodes["bank"].state.reason
    again = federation.node("bank")
    again.open()  # a restart folds the same journal, and hears the sender of refused bytes again
    assert not any(again.mailbox.allowance[party] for party in ("bank", "shop"))
    evidence = evidence_of(federation)
    assert [v.found for v in audit(evidence) if v.found and "shop" not in v.found] == []
    assert (verify_journal.verify(write_run(evidence, tmp_path)) != {}) == any(
        v.found for v in audit(evidence)
    )


def test_a_release_too_large_to_ask_for_is_no_stain_on_the_journal_of_who_refused_it(tmp_path):
    federation = LyingFederation(manifest(), tables(149), liars={"shop": Greedy})
    federation.simulate()
    evidence = evidence_of(federation)
    shown = {"bank": evidence.transcripts["bank"]}
    only = replace(evidence, transcripts=shown, ledgers={"bank": evidence.ledgers["bank"]})
    assert [v.found for v in audit(only) if v.found and "shop" not in v.found] == []
    run = write_run(only, tmp_path)
    found = {v.number for v in audit(read_evidence(run)) if v.found}
    assert min(verify_journal.verify(run)) == min(found) == 6
