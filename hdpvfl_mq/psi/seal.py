"""Sealed links between two parties.

It owns pair keys and authenticated encryption; it knows no protocol. The broker carries every
block, so blocks are encrypted end to end under keys agreed in the signed hello: the broker sees
only stages and sizes. The nonce is a hash of the block's place, which occurs once in a session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base

from hdpvfl_mq.psi.stream import derive

SEAL_BYTES = 16
Place = tuple[str, int, bool, tuple[int, ...]]  # stage, index, last, meta


@dataclass(frozen=True)
class Link:
    """Keys of one pair of parties, as one of them uses them."""

    send_key: bytes
    receive_key: bytes
    shared_key: bytes

    def seal(self, place: Place, payload: bytes) -> bytes:
        """Encrypt a block for its place in the session."""
        nonce, header = _nonce(place)
        return ChaCha20Poly1305(self.send_key).encrypt(nonce, payload, header)

    def unseal(self, place: Place, sealed: bytes) -> bytes | None:
        """The payload, or None if it was not sealed for this place by the peer."""
        nonce, header = _nonce(place)
        try:
            return ChaCha20Poly1305(self.receive_key).decrypt(nonce, sealed, header)
        except InvalidTag:
            return None


def _nonce(place: Place) -> tuple[bytes, bytes]:
    stage, index, last, meta = place
    header = "|".join([stage, *map(str, map(int, (index, last, *meta)))]).encode()
    return blake2b(header, digest_size=12).digest(), header


@dataclass(frozen=True)
class KeyPair:
    """A party's X25519 keys for one session."""

    secret: bytes = field(repr=False)
    public: bytes


def key_pair(secret: bytes) -> KeyPair:
    """The keys of a 32-byte secret."""
    return KeyPair(secret, crypto_scalarmult_base(secret))


def open_link(own: KeyPair, peer_key: bytes, me: str, peer: str) -> Link | None:
    """The keys shared with a peer, or None if its public key is degenerate."""
    try:
        agreed = crypto_scalarmult(own.secret, peer_key)
    except RuntimeError:
        return None
    ends = sorted([(me, own.public), (peer, peer_key)])
    shared = derive(agreed, "psi link", *[part for end in ends for part in end])
    return Link(derive(shared, "from", me), derive(shared, "from", peer), derive(shared, "both"))
