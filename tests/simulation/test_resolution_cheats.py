"""An active party or a coordinator that cheats in entity resolution: noticed, and unanswered."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.machine import Received, Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.psi.ot_oprf import OtAsker
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.wire.codec import decode_body, decode_header
from parties.alignment import toss_commitment
from parties.phases import Leaving
from schemas.messages import AlignBlock, AlignStart, RunAccept
from schemas.records import EnvelopeReceived, EnvelopeSent
from schemas.tensor import Tensor
from tests.federation import Federation, LyingFederation, manifest, tables
from tests.simulation.test_resolution import QUICK, federation_of, overlapping, spec


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


def envelopes_received(federation: Federation, party: str):
    """Header and frames of everything that a party has received."""
    for record, _ in walk(federation.journals[party].records()):
        if isinstance(record.input, EnvelopeReceived):
            yield decode_header(record.input.frames), record.input.frames


def stages_sent(federation: Federation, party: str) -> set[str]:
    """The stages of the blocks that a party has sent."""
    messages = messages_sent(federation, party)
    return {message.stage for message in messages if isinstance(message, AlignBlock)}


@pytest.mark.parametrize("crashes", [0, 6])
def test_a_query_that_is_not_of_codewords_ends_the_run_unanswered(crashes, monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.psi.methods.OtAsker", ShiftingAsker)
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
    assert "what bank sent in entity resolution" in closed
    assert not any(entry.kind == "spend" for e in federation.spent().values() for _, entry in e)


def test_after_a_failed_proof_a_party_hears_no_further_query(monkeypatch):
    """Else the active party would try again and again, a guess of secret bits each time."""
    monkeypatch.setattr("hdpvfl_mq.psi.methods.OtAsker", ShiftingAsker)
    federation = federation_of(1, alignment=spec(method="oprf"))
    federation.simulate()
    role = federation.node("p1").role
    state, phases = role.initial(), []
    for record, _ in walk(federation.journals["p1"].records()):
        if isinstance(record.input, EnvelopeReceived):
            header = decode_header(record.input.frames)
            given = Received(header.sender, decode_body(header, record.input.frames))
            with suppress(PeerError):
                state, effects = role.step(state, given)
            if isinstance(given.message, AlignBlock) and given.message.stage == "query":
                phases.append((state, given, effects))
        elif record.input.kind == "started":
            state, _ = role.step(state, record.input)
    state, query, effects = phases[-1]
    assert isinstance(state, Leaving)
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    assert {message.reason for message in sent} == {"proof"}
    assert role.step(state, query) == (state, ())


def test_the_start_of_entity_resolution_cannot_name_a_method():
    """Parties take it from the manifest they accepted; the message has no field for it."""
    assert set(AlignStart.model_fields) == {"kind", "is_kept", "commitments"}
    federation = federation_of(1, alignment=spec(method="oprf"))
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    points = {
        message.tensor.shape
        for message in messages_sent(federation, "p1")
        if isinstance(message, AlignBlock) and message.stage == "choose"
    }
    assert points == {(480 * 32 + 16,)}


class SplittingCoordinator(Node):
    """Shows p2 another commitment of bank than the others, to grind the seed with its help."""

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and isinstance(effect.message, AlignStart):
            commitments = (bytes(32), *effect.message.commitments[1:])
            other = AlignStart(**{**dict(effect.message), "commitments": commitments})
            super()._perform(Send(("p2",), other), parent)
            effect = Send(("bank", "p1"), effect.message)
        return super()._perform(effect, parent)


@pytest.mark.parametrize(("wire", "noticed_by"), [(1, "p1"), (2, "bank")])
def test_parties_that_are_shown_different_commitments_do_not_start(wire, noticed_by):
    names = {"passive_parties": ("p1", "p2"), "wire": wire}
    settings = manifest(alignment=spec(), deadline_s=60.0, **names, **QUICK)
    liars = {"coordinator": SplittingCoordinator}
    federation = LyingFederation(settings, overlapping(2), liars=liars)
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"mismatch"}
    for party in federation.parties:
        assert stages_sent(federation, party) <= {"hello"}
    reason = simulation.nodes[noticed_by].state.reason
    assert reason == "p2 has other terms of entity resolution: compare manifests"


class EarlyGarbage(Node):
    """Sends a block nobody can read as soon as it has accepted the offer."""

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and isinstance(effect.message, RunAccept):
            garbage = Tensor.of(np.zeros(40, dtype=np.uint8))
            block = AlignBlock(stage="query", index=0, last=True, meta=(0,), tensor=garbage)
            super()._perform(Send(("shop",), block), parent)
        return super()._perform(effect, parent)


def test_garbage_before_the_start_does_not_keep_a_party_from_starting():
    """What came early is judged block by block, and a bad one is recorded."""
    federation = LyingFederation(liars={"telco": EarlyGarbage})
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    effects = (e for r, _ in walk(federation.journals["shop"].records()) for e in r.effects)
    reasons = [effect.reason for effect in effects if effect.kind == "refused"]
    assert any("telco" in reason for reason in reasons)


def test_other_ids_never_meet_the_keys_of_these():
    """The secret of a session follows from the run's secret and the ids together."""
    own = federation_of(1).node("p1").role.own
    fewer = own.ids.ids.chosen(np.arange(len(own.ids.ids) - 1), np.empty)
    other = replace(own, ids=replace(own.ids, ids=fewer))
    assert own.secret == other.secret
    assert own.workspace.secret != other.workspace.secret
    assert toss_commitment(own) != toss_commitment(other)


class StandingBetween(Node):
    """Relays telco another key of shop, to learn the shares by which their answers cancel."""

    def _perform(self, effect, parent):
        message = effect.message if isinstance(effect, Send) else None
        if isinstance(message, AlignBlock) and message.stage == "hellos":
            listed = bytearray(message.tensor.data)
            entry = len(listed) // 3
            listed[entry : entry + 32] = listed[:32]  # the key of bank in place of shop's
            forged = Tensor.of(np.frombuffer(bytes(listed), dtype=np.uint8))
            other = AlignBlock(**{**dict(message), "tensor": forged})
            super()._perform(Send(("telco",), other), parent)
            effect = Send(("shop",), message)
        return super()._perform(effect, parent)


@pytest.mark.parametrize("crashes", [0, 6])
def test_an_active_party_that_relays_another_key_is_named_before_any_answer(crashes):
    settings, liars = manifest(wire=2, **QUICK), {"bank": StandingBetween}
    federation = LyingFederation(settings, tables(44), liars=liars)
    simulation = federation.simulate(faults=Faults(crashes=crashes, crash_window_s=1.0))
    assert set(federation.outcomes.values()) == {"withdrawn"}
    reason = simulation.nodes["telco"].state.reason
    assert reason.startswith("bank relays what it had to refuse: shop has not signed its hello")
    assert "answer" not in stages_sent(federation, "telco")
    assert not any(entry.kind == "spend" for e in federation.spent().values() for _, entry in e)


def test_every_party_hears_as_many_hellos_as_it_must():
    """Once, every party sent its hello to every other: n * (n - 1) envelopes."""
    for passives in (2, 6):
        federation = federation_of(passives)
        federation.simulate()
        assert set(federation.outcomes.values()) == {"completed"}
        heard = Counter(
            (header.sender, decode_body(header, frames).stage)
            for party in federation.parties
            for header, frames in envelopes_received(federation, party)
            if header.kind == "align_block"
        )
        assert sum(n for (_, stage), n in heard.items() if stage == "hello") == passives
        assert heard["bank", "hellos"] == passives
        assert max(heard[f"p{k}", stage] for k in (1, 2) for _, stage in heard) == 1
