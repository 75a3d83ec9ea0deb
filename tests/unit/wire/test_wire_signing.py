"""What a signature covers: every other frame, its length and its place."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.signing import envelope_digest, sign, verify

KEY = SigningKey(bytes(32))


def test_a_signature_verifies_with_its_key_only():
    digest = envelope_digest(b"header", b"body", (b"array",))
    verify(KEY.verify_key, digest, sign(KEY, digest))
    with pytest.raises(PeerError):
        verify(SigningKey(bytes([1]) * 32).verify_key, digest, sign(KEY, digest))


@pytest.mark.parametrize("signature", [b"", bytes(64), bytes(63), bytes(65), b"\xff" * 64])
def test_a_broken_signature_is_refused(signature):
    with pytest.raises(PeerError):
        verify(KEY.verify_key, envelope_digest(b"", b"", ()), signature)


@pytest.mark.parametrize(
    "other",
    [
        (b"headerb", b"ody", (b"array",)),
        (b"header", b"bodya", (b"rray",)),
        (b"header", b"body", ()),
        (b"header", b"body", (b"array", b"")),
        (b"header", b"body", (b"", b"array")),
        (b"header", b"bodyarray", ()),
        (b"body", b"header", (b"array",)),
    ],
)
def test_bytes_cannot_move_between_frames(other):
    assert envelope_digest(*other) != envelope_digest(b"header", b"body", (b"array",))
