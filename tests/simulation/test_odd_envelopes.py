"""A member signs envelopes of an odd form: no honest journal looks damaged, both verifiers agree.

What is recorded stays evidence against its sender (check 6, exit code 1); it never makes the
journal of its receiver contradict itself (exit code 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import Frames, decode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.records import EnvelopeReceived, Refused
from scripts import verify_journal
from tests.evidence import edited, evidence_of, only, relinked, with_rows, write_run
from tests.federation import Federation, manifest, tables
from tests.unit.audit.honest import honest, records

LIAR, HONEST = "shop", ("coordinator", "bank", "telco")
SECONDS = 20.0  # of virtual time; the deadline is a day
STRANGER = "to a stranger"  # who is one, parties may see differently: its receiver takes it
ACK = pack({"kind": "ack"})
FALSE = {"sequence": 999, "ack": 0, "seen": bytes([1]) * 32}
Change = Callable[[dict, bytes, Frames], tuple[dict, bytes, Frames]]


def _to(header, **changes):
    return {**header, "to": (*header["to"], {**header["to"][0], **changes})}


def _fields(body: bytes, **changes) -> bytes:
    return pack({**unpack(body, max_bytes=2**20), **changes})


# Header, body and arrays of a share -> those of an odd one.
SHARES: dict[str, Change] = {
    "twice to one": lambda h, b, a: (_to(h, **FALSE), b, a),
    "twice to one, one seen falsely": lambda h, b, a: (_to(h, seen=FALSE["seen"]), b, a),
    STRANGER: lambda h, b, a: (_to(h, party="nobody"), b, a),
    "to a party that may not have it": lambda h, b, a: (_to(h, party="telco"), b, a),
    "an acknowledgement with a number": lambda h, b, a: ({**h, "kind": "ack"}, ACK, ()),
    "no message": lambda h, b, a: (h, b"\xc1\xff", a),
    "empty": lambda h, b, a: (h, b"", a),
    "a text": lambda h, b, a: (h, b"\xa3abc", a),
    "nested": lambda h, b, a: (h, b"\x91" * 2000 + b"\x90", a),
    "not canonical": lambda h, b, a: (h, b[:-1] + b"\xcc" + b[-1:], a),
    "one field more": lambda h, b, a: (h, _fields(b, more=1), a),
    "a text for a number": lambda h, b, a: (h, _fields(b, orders="x"), a),
    "a text for a release": lambda h, b, a: (h, _fields(b, release="x"), ()),
    "no array": lambda h, b, a: (h, b, ()),
    "an array too many": lambda h, b, a: (h, ACK, a),
    "another kind": lambda h, b, a: (h, ACK, ()),
}
ACKS: dict[str, Change] = {
    "no message": lambda h, b, a: (h, b"\xc1", ()),
    "one field more": lambda h, b, a: (h, _fields(b, more=1), ()),
    "an empty array": lambda h, b, a: (h, b, (b"",)),
    "twice to one": lambda h, b, a: (_to(h, seen=FALSE["seen"]), b, a),
    STRANGER: lambda h, b, a: (_to(h, party="nobody"), b, a),
}


class Odd(Node):
    """Signs anything."""

    how: str

    def odd(self, frames: Frames, change: Change) -> Frames:
        plain = unpack(frames[0], max_bytes=2**20)
        header, body, arrays = change(plain, frames[2], frames[3:])
        packed = pack(header)
        digest = envelope_digest(packed, body, arrays)
        return (packed, sign(self.identity.signing_key, digest), body, *arrays)


class OddShare(Odd):
    """Sends its first share in an odd form, and stands by it."""

    has_shared = False

    def turn(self, arrivals, events=()):
        turn = super().turn(arrivals, events)
        return replace(turn, send=tuple(map(self._share, turn.send)))

    def _share(self, frames: Frames) -> Frames:
        header = decode_header(frames)
        if header.kind != "score_share" or self.has_shared:
            return frames
        self.has_shared = True
        odd = self.odd(frames, SHARES[self.how])
        for delivery in header.to:
            self.mailbox._outbox[delivery.party].waiting[delivery.sequence] = (odd, 0)
            self.mailbox._outbox[delivery.party].digests.pop(delivery.sequence, None)
        return odd


class OddAcks(Odd):
    """Sends all bare acknowledgements in an odd form."""

    def acknowledgement(self):
        frames = super().acknowledgement()
        return None if frames is None else self.odd(frames, ACKS[self.how])


@dataclass
class OddFederation(Federation):
    """One member writes odd envelopes."""

    how: str = ""
    kind: type[Odd] = field(default=OddShare)

    def node(self, party):
        node = super().node(party)
        if party == LIAR:
            node.__class__ = self.kind
            vars(node)["how"] = self.how
        return node


def verdicts(evidence, folder) -> tuple[int, int]:
    """The exit codes of both verifiers."""
    found = verify_journal.verify(write_run(evidence, folder))
    second = 0 if not found else 5 if min(found) <= 5 else 1
    return exit_code(audit(evidence)), second


def both_agree(federation, folder) -> set[int]:
    """The exit codes for each honest journal and for all of them."""
    shown = [*((party,) for party in HONEST), HONEST]
    codes = [
        verdicts(evidence_of(federation, only=parties), folder / str(number))
        for number, parties in enumerate(shown)
    ]
    assert all(first == second for first, second in codes), codes
    return {first for first, _ in codes}


@pytest.mark.parametrize("how", SHARES)
def test_an_odd_share_ends_the_run_and_leaves_honest_journals_whole(how, tmp_path):
    """Bug: six of these made an honest journal contradict itself for one verifier or both."""
    brief = manifest(epochs=1, batch_rows=40)
    federation = OddFederation(brief, tables(44), how=how)
    simulation = federation.simulate()
    assert simulation.now < SECONDS
    is_over = LIAR in simulation.nodes["telco"].state.reason
    assert is_over or (how == STRANGER and federation.outcomes["telco"] == "completed")
    assert 5 not in both_agree(federation, tmp_path)


@pytest.mark.parametrize("how", ACKS)
def test_an_odd_acknowledgement_is_refused_or_evidence_against_its_sender(how, tmp_path):
    """Bug: unnoticed in a completed run, these made honest journals contradict themselves."""
    federation = OddFederation(manifest(batch_rows=20), tables(44), how=how, kind=OddAcks)
    federation.simulate()
    assert both_agree(federation, tmp_path) <= ({0, 1} if how == STRANGER else {0})


def test_a_refusal_of_a_message_that_can_be_read_is_a_finding_for_both(tmp_path):
    """The second verifier believes such a refusal, so the first one checks it."""
    evidence = only(honest(), "bank")
    steps = records(evidence, "bank")
    taken = (s.index for s in steps if isinstance(s.input, EnvelopeReceived) and not s.effects)
    at = next(taken)
    steps[at] = edited(steps[at], effects=(Refused(reason="body breaks its schema: more"),))
    changed = with_rows(evidence, "bank", relinked(steps))
    found = {verdict.number for verdict in audit(changed) if not verdict.passed}
    assert 6 in found
    assert 6 in verify_journal.verify(write_run(changed, tmp_path))
