"""What tests remember of signatures: any other bytes, signature or key go to the library."""

from __future__ import annotations

import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

KEY, OTHER = SigningKey(bytes(32)), SigningKey(bytes([1]) * 32)
MESSAGE = b"thirty-two bytes of some digest."
SIGNATURE = KEY.sign(MESSAGE).signature


def test_what_was_signed_here_verifies():
    assert KEY.verify_key.verify(MESSAGE, SIGNATURE) == MESSAGE


@pytest.mark.parametrize("place", range(0, 64, 7))
def test_another_signature_is_refused(place):
    wrong = bytes(byte ^ (k == place) for k, byte in enumerate(SIGNATURE))
    with pytest.raises(BadSignatureError):
        KEY.verify_key.verify(MESSAGE, wrong)


def test_another_message_is_refused():
    with pytest.raises(BadSignatureError):
        KEY.verify_key.verify(MESSAGE[:-1] + b"!", SIGNATURE)


def test_another_key_is_refused():
    with pytest.raises(BadSignatureError):
        OTHER.verify_key.verify(MESSAGE, SIGNATURE)
