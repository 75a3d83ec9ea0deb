"""A member or the coordinator sends what must be refused in place of what the run needs.

The run ends for everybody within seconds of virtual time, and the reason names who sent it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import decode_header, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.ids import COORDINATOR
from schemas.records import Refused, TurnedAway
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, tables

SECONDS = 20.0  # of virtual time; the deadline is a day
KINDS = [
    ("shop", "run_accept"),
    ("shop", "align_block"),
    ("shop", "agreement"),
    ("shop", "aligned"),
    ("shop", "score_share"),
    ("shop", "round_report"),
    ("shop", "ending"),
    ("bank", "agreed"),
    ("bank", "residual"),
    ("bank", "ended"),
    (COORDINATOR, "run_offer"),
    (COORDINATOR, "align_start"),
    (COORDINATOR, "round_plan"),
    (COORDINATOR, "run_closed"),
]


class Broken(Node):
    """Sends one kind of message with a field nobody knows, and stands by it."""

    kind: str

    def _perform(self, effect, parent):
        recorded = super()._perform(effect, parent)
        if not isinstance(effect, Send) or effect.message.kind != self.kind:
            return recorded
        header, _, body, *arrays = self._uncommitted.send.pop()
        body = pack({**unpack(body, max_bytes=2**20), "more": 1})
        signature = sign(self.identity.signing_key, envelope_digest(header, body, tuple(arrays)))
        frames = (header, signature, body, *arrays)
        for delivery in decode_header(frames).to:
            outbox = self.mailbox._outbox[delivery.party]
            outbox.waiting[delivery.sequence] = (frames, 0)
            outbox.digests.pop(delivery.sequence, None)
        self._uncommitted.send.append(frames)
        return recorded


class FalselySeen(Broken):
    """Says in their headers that it has seen another envelope than it was sent."""

    def _perform(self, effect, parent):
        recorded = Node._perform(self, effect, parent)
        if not isinstance(effect, Send) or effect.message.kind != self.kind:
            return recorded
        frames = self._uncommitted.send.pop()
        header = decode_header(frames)
        to = tuple(type(d)(**{**dict(d), "seen": bytes(32)}) for d in header.to)
        packed = encode_header(type(header)(**{**dict(header), "to": to}))
        digest = envelope_digest(packed, frames[2], frames[3:])
        frames = (packed, sign(self.identity.signing_key, digest), *frames[2:])
        for delivery in to:
            self.mailbox._outbox[delivery.party].waiting[delivery.sequence] = (frames, 0)
        self._uncommitted.send.append(frames)
        return recorded


@dataclass
class BrokenFederation(Federation):
    """One node is broken in one kind of message."""

    who: str = ""
    kind: str = ""
    how: type[Broken] = field(default=Broken)

    def node(self, party):
        node = super().node(party)
        if party == self.who:
            node.__class__ = self.how
            vars(node)["kind"] = self.kind
        return node


def ended(who: str, kind: str, how: type[Broken] = Broken):
    brief = manifest(epochs=1, batch_rows=40, rounds_ahead=4)
    federation = BrokenFederation(brief, tables(44), who=who, kind=kind, how=how)
    return federation, federation.simulate()


@pytest.mark.parametrize(("who", "kind"), KINDS)
def test_the_run_ends_for_all_and_the_reason_names_who_broke_it(who, kind):
    """Bug: a refused release was waited for until the deadline, a day later."""
    federation, simulation = ended(who, kind)
    assert simulation.now < SECONDS
    honest = [name for name in (*federation.parties, COORDINATOR) if name != who]
    assert all(simulation.nodes[name].outcome not in (None, "completed") for name in honest)
    for name in honest:
        assert who in simulation.nodes[name].state.reason, name


@pytest.mark.parametrize(("who", "kind"), [("shop", "score_share"), ("bank", "residual")])
def test_a_false_acknowledgement_ends_the_run_at_once_and_is_in_the_chain(who, kind):
    federation, simulation = ended(who, kind, FalselySeen)
    assert simulation.now < SECONDS
    victim = "bank" if who == "shop" else "shop"
    assert who in simulation.nodes[victim].state.reason
    noted = [chain.decode(r, i).input for i, r, _ in federation.journals[victim].records()]
    assert any(isinstance(note, TurnedAway) and note.party == who for note in noted)
    assert exit_code(audit(evidence_of(federation, only=(victim,)))) == 0


def test_the_refusal_and_its_timer_are_one_record_that_folds_again():
    federation, simulation = ended("shop", "score_share")
    records = [chain.decode(r, i) for i, r, _ in federation.journals["bank"].records()]
    kinds = [tuple(e.kind for e in record.effects) for record in records]
    assert ("refused", "arm") in kinds
    again = federation.node("bank")
    again.open()
    live = simulation.nodes["bank"]
    assert (again.head, again.outcome, again.state.reason) == (
        live.head,
        live.outcome,
        live.state.reason,
    )


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_refused_in_an_honest_run(seed):
    federation = Federation(manifest(seed=seed), tables(44, seed=seed))
    federation.simulate()
    for party, journal in federation.journals.items():
        effects = [e for i, r, _ in journal.records() for e in chain.decode(r, i).effects]
        assert not any(isinstance(effect, Refused) for effect in effects), party
