"""The public seed of an entity resolution, tossed jointly.

It owns nonces, commitments and the seed. Every party commits to a nonce before it knows any other
nonce, and reveals it once it knows all commitments. So no party can choose its nonce to steer the
seed, not even the last one to reveal together with the broker that carries the messages. A party
can only leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest

from hdpvfl_mq.psi.stream import derive

NONCE_BYTES = 32
_MARK = b"hdpvfl+1"  # 24 bytes of the nonce stay random


def nonce_of(secret: bytes) -> bytes:
    """A party's share of the seed; it is fresh because its secret is."""
    return derive(secret, "toss")


def marked_nonce(secret: bytes) -> bytes:
    """The nonce of a party that speaks a newer version of the protocol than its run."""
    return nonce_of(secret)[: -len(_MARK)] + _MARK


def is_marked(nonce: bytes) -> bool:
    """Whether a nonce was marked; one of another party is not, except with probability 2^-64."""
    return nonce.endswith(_MARK)


def commit(nonce: bytes, party: str) -> bytes:
    """The commitment to a nonce; it includes the party's name, so nobody can reuse another's."""
    return derive(nonce, "toss commitment", party)


def is_committed(commitment: bytes, nonce: bytes, party: str) -> bool:
    """Whether this nonce is the one the party committed to."""
    return compare_digest(commitment, commit(nonce, party))


def toss(session_id: bytes, nonces: Sequence[bytes]) -> bytes:
    """The seed of all nonces, the active party's first."""
    return derive(session_id, "public seed", *nonces)
