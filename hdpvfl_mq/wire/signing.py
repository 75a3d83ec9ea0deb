"""Ed25519 over the digest of an envelope's frames.

It owns what is signed; it knows no key file and no role. It uses PyNaCl, the fastest wheel
measured. It signs the digest, not the payload, so a large array costs one SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.errors import PeerError

_DOMAIN = b"hdpvfl-mq envelope 1\x00"


def envelope_digest(header: bytes, body: bytes, arrays: Sequence[bytes]) -> bytes:
    """Digest of every frame but the signature, each with its length."""
    state = hashlib.sha256(_DOMAIN)
    for frame in (header, body, *arrays):
        state.update(len(frame).to_bytes(8, "big"))
        state.update(frame)
    return state.digest()


def frames_digest(frames: Sequence[bytes]) -> bytes:
    """The signed digest of an envelope's frames: it covers all of them but the signature."""
    return envelope_digest(frames[0], frames[2], frames[3:])


def sign(key: SigningKey, digest: bytes) -> bytes:
    """Signature of 64 bytes over a digest."""
    return key.sign(digest).signature


def verify(key: VerifyKey, digest: bytes, signature: bytes) -> None:
    """Return nothing, or raise PeerError."""
    try:
        key.verify(digest, signature)
    except (BadSignatureError, ValueError, TypeError):
        raise PeerError("signature does not verify") from None


def is_signed(key: VerifyKey, digest: bytes, signature: bytes) -> bool:
    """Whether a signature verifies, for callers that report whose signature is wrong."""
    try:
        verify(key, digest, signature)
    except PeerError:
        return False
    return True
