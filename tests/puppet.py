"""A peer that a test controls: signs any message in its name, with valid sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from nacl.signing import SigningKey

from hdpvfl_mq.wire.codec import encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.envelope import NO_PARENT, Delivery, Header
from schemas.messages import Message
from tests.samples import example


@dataclass
class Puppet:
    """One party's voice towards one receiver."""

    party: str
    key: SigningKey
    to: str
    run: str = "test-run"
    sequence: int = 0
    header: dict = field(default_factory=dict)

    def say(self, message: Message, **changes) -> tuple[bytes, ...]:
        """The next envelope in order; `changes` are made to its header before it is signed."""
        self.sequence += 1
        body, arrays = encode_body(message)
        return self.sealed(message.kind, body, arrays, **changes)

    def sealed(self, kind: str, body: bytes, arrays=(), **changes) -> tuple[bytes, ...]:
        """Any bytes as a body, properly signed."""
        delivery = {
            **dict(example(Delivery)),
            "party": self.to,
            "sequence": changes.pop("sequence", self.sequence),
            "ack": changes.pop("ack", 0),
            "seen": changes.pop("seen", NO_PARENT),
        }
        fields = {
            **dict(example(Header)),
            "run": self.run,
            "sender": self.party,
            "kind": kind,
            "to": (Delivery(**delivery),),
            **self.header,
            **changes,
        }
        header = encode_header(Header(**fields))
        signature = sign(self.key, envelope_digest(header, body, arrays))
        return (header, signature, body, *arrays)
