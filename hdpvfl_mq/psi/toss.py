"""The public seed of an entity resolution, tossed jointly. Owns nonces, commitments and the seed.

Every party commits to a nonce before it knows any other, and shows it once it knows all
commitments. So nobody can choose its nonce by the seed that would follow, not even the last to
speak together with whoever carries the messages; what a party can do is to leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest

from hdpvfl_mq.psi.stream import derive

NONCE_BYTES = 32


def nonce_of(secret: bytes) -> bytes:
    """A party's share of the seed, fresh as its secret is."""
    return derive(secret, "toss")


def commit(nonce: bytes, party: str) -> bytes:
    """What a party says about its nonce first; named, so that nobody can repeat another's."""
    return derive(nonce, "toss commitment", party)


def is_committed(commitment: bytes, nonce: bytes, party: str) -> bool:
    """Whether this nonce is the one the party committed to."""
    return compare_digest(commitment, commit(nonce, party))


def toss(session_id: bytes, nonces: Sequence[bytes]) -> bytes:
    """The seed of all nonces, the active party's first."""
    return derive(session_id, "public seed", *nonces)
