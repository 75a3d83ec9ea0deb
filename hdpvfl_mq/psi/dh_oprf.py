"""The Diffie-Hellman function F(x) = hash([k] P(x), x).

It owns blinding and unblinding. The asker sends [a] P(x), the answerer returns [k a] P(x), the
asker multiplies by the inverse of a. The same blinded points go to every answerer, in a random
order: an answerer that uses other keys in some places learns nothing about the order of the asker's
ids.

*Guarantee*: a malicious asker gets F at no more elements than it sends points (one-more gap
Diffie-Hellman on Curve25519, the hashes as random oracles); blinded points tell an answerer nothing
(decisional Diffie-Hellman).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.curve import (
    POINT_BYTES,
    are_points,
    blinding_scalar,
    hash_to_curve,
    in_blocks,
    multiply,
    secret_scalar,
)
from hdpvfl_mq.psi.oprf import hash_rows
from hdpvfl_mq.psi.stream import Words, derive, random_pairs

# Few enough for all workers of an engine to have some of a bucket, too many to start them for less.
_HASH_BLOCK, _MULTIPLY_BLOCK = 16 * 2048, POINT_BYTES * 1024


def _points(elements: Words, engine: Engine) -> bytes:
    pieces = ((block,) for block in in_blocks(elements.tobytes(), _HASH_BLOCK))
    return b"".join(engine.each(hash_to_curve, pieces))


def _multiplied(scalar: bytes, points: bytes, engine: Engine) -> bytes:
    pieces = ((scalar, block) for block in in_blocks(points, _MULTIPLY_BLOCK))
    return b"".join(engine.each(multiply, pieces))


def _outputs(points: bytes, elements: Words, engine: Engine) -> Words:
    rows = np.frombuffer(points, dtype="<u8").reshape(-1, POINT_BYTES // 8)
    return hash_rows(rows, elements, engine)


def _require_points(points: bytes, sender: str, stage: str) -> None:
    if not are_points(points):
        raise PeerError(f"{sender} sent points that are not on the curve, stage {stage}")


class DhLengths:
    """Points in, points out."""

    def query_bytes(self, count: int) -> int:
        return POINT_BYTES * count

    def reply_bytes(self, count: int) -> int:
        return POINT_BYTES * count


@dataclass(frozen=True)
class DhQuery:
    """Blinded points of one bucket, the same for every peer."""

    elements: Words
    order: NDArray[np.intp]
    blinded: bytes
    inverse: bytes
    engine: Engine = field(repr=False)

    def sent_to(self, peer: str, agreed: None) -> bytes:
        return self.blinded

    def outputs(self, peer: str, agreed: None, reply: bytes) -> Words:
        _require_points(reply, peer, "answer")
        points = _multiplied(self.inverse, reply, self.engine)
        outputs = np.empty_like(self.elements)
        outputs[self.order] = _outputs(points, self.elements[self.order], self.engine)
        return outputs


@dataclass(frozen=True)
class DhAsker:
    """Blinds the active party's elements."""

    secret: bytes
    engine: Engine = field(default_factory=LocalEngine, repr=False)

    def opening(self, peer: str) -> bytes:
        return b""

    def agree(self, peer: str, choice: bytes) -> None:
        if choice:
            raise PeerError(f"{peer} sent a choice that method ecdh does not have, stage choose")

    def prepare(self, bucket: int, elements: Words) -> DhQuery:
        scalar, inverse = blinding_scalar(derive(self.secret, "dh blinding", bucket))
        random = random_pairs(derive(self.secret, "dh order", bucket), len(elements))
        order = np.argsort(random[:, 0])
        blinded = _multiplied(scalar, _points(elements[order], self.engine), self.engine)
        return DhQuery(elements, order, blinded, inverse, self.engine)


@dataclass(frozen=True)
class DhAnswerer:
    """Multiplies by a passive party's key."""

    secret: bytes
    asker: str
    engine: Engine = field(default_factory=LocalEngine, repr=False)

    def choose(self, opening: bytes) -> tuple[bytes, None]:
        if opening:
            raise PeerError(f"{self.asker} sent an opening that ecdh does not have, stage open")
        return b"", None

    def answer(
        self, agreed: None, bucket: int, query: bytes, count: int, elements: Words
    ) -> tuple[bytes, Words]:
        _require_points(query, self.asker, "query")
        scalar = secret_scalar(derive(self.secret, "dh key", bucket))
        own = _multiplied(scalar, _points(elements, self.engine), self.engine)
        return _multiplied(scalar, query, self.engine), _outputs(own, elements, self.engine)
