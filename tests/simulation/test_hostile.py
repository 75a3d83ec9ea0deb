"""A party with valid keys that lies: its envelopes are in order and signed, their content is not.

Each lie takes a number of the liar's own stream, so it reaches the role of the receiver; it must be
refused there, recorded, and the run must end with the weights and ledgers of the calm run.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.machine import Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.envelope import NO_PARENT, Header
from tests.federation import Federation, manifest, tables
from tests.samples import example

LIAR = {"score_share": "telco", "residual": "bank"}
HEARER = {"score_share": "bank", "residual": "shop"}
SMALL = {"epochs": 2, "batch_rows": 20}  # a lie is told in the first of four rounds


def tensor_of(body, **changes):
    return {
        **body,
        "release": {**body["release"], "tensor": {**body["release"]["tensor"], **changes}},
    }


def release_of(body, **changes):
    return {**body, "release": {**body["release"], **changes}}


def count(body):
    return body["release"]["tensor"]["shape"][0]


# name -> (body, arrays) of an honest message -> those of the lie, and the words of the refusal
LIES = {
    "NaN": lambda b, a: (
        tensor_of(b, dtype="<f8"),
        (np.full(count(b), np.nan).tobytes(),),
        "non-finite",
    ),
    "infinite": lambda b, a: (
        tensor_of(b, dtype="<f8"),
        (np.full(count(b), np.inf).tobytes(),),
        "non-finite",
    ),
    "floats where integers belong": lambda b, a: (
        tensor_of(b, dtype="<f8"),
        (np.ones(count(b)).tobytes(),),
        "",
    ),
    "a value too few": lambda b, a: (
        tensor_of(b, dtype="<i8", shape=(count(b) - 1,)),
        (bytes(8 * (count(b) - 1)),),
        "expected",
    ),
    "a value too many": lambda b, a: (
        tensor_of(b, dtype="<i8", shape=(count(b) + 1,)),
        (bytes(8 * (count(b) + 1)),),
        "expected",
    ),
    "a matrix": lambda b, a: (
        tensor_of(b, dtype="<i8", shape=(count(b), 1)),
        (bytes(8 * count(b)),),
        "expected",
    ),
    "bytes that do not fit the shape": lambda b, a: (b, (a[0] + b"x",), "do not fit"),
    "a type not on the list": lambda b, a: (tensor_of(b, dtype="<f4"), a, "dtype"),
    "a big-endian type": lambda b, a: (tensor_of(b, dtype=">i8"), a, "dtype"),
    "objects": lambda b, a: (tensor_of(b, dtype="|O"), a, "dtype"),
    "a shape that wraps around": lambda b, a: (
        tensor_of(b, dtype="<i8", shape=(2**33, 2**33)),
        (b"",),
        "",
    ),
    "unsigned numbers": lambda b, a: (
        tensor_of(b, dtype="|u1"),
        (bytes(count(b)),),
        "",
    ),
    "values beyond the bound": lambda b, a: (
        tensor_of(b, dtype="<i8"),
        (np.full(count(b), 2**61, dtype="<i8").tobytes(),),
        "beyond its public bound",
    ),
    "values beyond 2^62": lambda b, a: (
        tensor_of(b, dtype="<i8"),
        (np.full(count(b), -(2**63), dtype="<i8").tobytes(),),
        "beyond 2^62",
    ),
    "another exponent": lambda b, a: (release_of(b, exponent=64), a, "beyond its public bound"),
    "an exponent off the scale": lambda b, a: (release_of(b, exponent=65), a, "exponent"),
    "another round": lambda b, a: ({**b, "round": b["round"] + 1}, a, "expected the"),
    "another's release": lambda b, a: (
        release_of(b, release_id="test-run/shop/share/0"),
        a,
        "expected the",
    ),
    "an unknown field": lambda b, a: ({**b, "gradient": 1}, a, "gradient"),
    "a missing field": lambda b, a: ({k: v for k, v in b.items() if k != "round"}, a, "round"),
    "another kind": lambda b, a: ({**b, "kind": "ack"}, a, ""),
    "a huge integer": lambda b, a: ({**b, "round": 2**64 - 1}, a, "round"),
    "text for a number": lambda b, a: ({**b, "round": "0"}, a, "round"),
    "no array": lambda b, a: (b, (), "array frame"),
}


class Liar(Node):
    """Tells its lie once, just before its first honest message of that kind."""

    lie = None
    kind = ""
    words: list[str]  # where the words of the expected refusal go

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and effect.message.kind == self.kind and self.lie is not None:
            lie, self.lie = self.lie, None
            self._uncommitted.send.append(self._told(effect, lie))
        return super()._perform(effect, parent)

    def _told(self, effect, lie):
        plain, arrays = encode_body(effect.message)
        body, arrays, self.words[0] = lie(unpack(plain, max_bytes=10**6), arrays)
        numbers = {party: self.mailbox._outbox[party].number() for party in effect.to}
        to = tuple(self.mailbox._delivery(party, number) for party, number in numbers.items())
        identity = {"run": self.identity.run, "sender": self.identity.party, "to": to}
        header = encode_header(
            Header(**{**dict(example(Header)), **identity, "kind": self.kind, "parent": NO_PARENT})
        )
        packed = pack(body)
        signature = sign(self.identity.signing_key, envelope_digest(header, packed, arrays))
        frames = (header, signature, packed, *arrays)
        for party, number in numbers.items():
            self.mailbox._outbox[party].keep(number, frames, 0)
        return frames


class LyingFederation(Federation):
    """One party of it lies once."""

    lie = None
    kind = ""

    def node(self, party):
        node = super().node(party)
        if party == LIAR[self.kind]:
            node.__class__ = Liar
            node.kind, node.lie, node.words = self.kind, self.lie, self.words
        return node


@pytest.fixture(scope="module")
def calm():
    federation = Federation(manifest(**SMALL), tables(40))
    return federation.weights(federation.simulate()), federation.spent()


@pytest.mark.parametrize("kind", LIAR)
@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_recorded_and_without_effect(calm, kind, name):
    federation = LyingFederation(manifest(**SMALL), tables(40))
    federation.kind, federation.lie, federation.words = kind, LIES[name], ["not told"]
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    weights, spent = calm
    for party, w in federation.weights(simulation).items():
        np.testing.assert_array_equal(w, weights[party])
    assert federation.spent() == spent
    refusals = [
        stored
        for _, stored, _ in federation.journals[HEARER[kind]].records()
        if b"\xa7refused" in stored
    ]
    assert len(refusals) == 1, "the lie was not recorded once"
    assert federation.words[0].encode() in refusals[0]
