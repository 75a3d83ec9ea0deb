"""The proof that a query consists of codewords.

It owns challenge, fingerprints and the check. Without the proof a malicious asker can shift rows of
its query and read the answerer's secret bits from the answer. Each column of bits is a polynomial
over GF(2^128); its fingerprint is the value at three points that a hash of the whole query decides
(Fiat-Shamir). The map is linear, so the fingerprints of the asker's rows, of the answerer's rows
and of the messages satisfy the same equation as the rows themselves: Q = T xor (C(messages) and s).
After Orrù, Orsini and Scholl (2017); the parameters are proved in docs/entity-resolution.md.

*Bound*: the asker learns k bits of s with probability at most 2^-k, else it is caught. Other
deviations pass with probability below 2^-72 for 2^128 hashes.
"""

from __future__ import annotations

from hmac import compare_digest

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from hdpvfl_mq.psi.code import MESSAGE_BITS, MESSAGE_BYTES, encode_columns
from hdpvfl_mq.psi.stream import Octets, derive

_POINTS = 3
_FIELD_BYTES = 16
_DIGEST_BYTES = 32
_NONCE = bytes(12)
# Bytes of random messages at the start of each column, which hide the other rows in the proof.
MASK_BYTES = _POINTS * _FIELD_BYTES
PROOF_BYTES = MESSAGE_BITS * MASK_BYTES + _DIGEST_BYTES


def challenge(transcript: bytes, bucket: int, query: bytes) -> bytes:
    """32 bytes that nobody can know before the query and the transcript before it are fixed."""
    return derive(transcript, "consistency", bucket, query)


def prove(challenged: bytes, rows: Octets, messages: Octets) -> bytes:
    """The asker's proof, from its T and the encoded messages, both as bit columns."""
    shown = _fingerprints(challenged, messages[:MESSAGE_BITS]).tobytes()
    return shown + _digest(challenged, _fingerprints(challenged, rows))


def is_proved(challenged: bytes, rows: Octets, bits: NDArray[np.uint8], proof: bytes) -> bool:
    """Whether the answerer's Q and secret bits satisfy the equation."""
    shown = np.zeros((8 * MESSAGE_BYTES, MASK_BYTES), dtype=np.uint8)
    shown[:MESSAGE_BITS] = np.frombuffer(proof[:-_DIGEST_BYTES], np.uint8).reshape(MESSAGE_BITS, -1)
    expected = _fingerprints(challenged, rows) ^ bits[:, np.newaxis] * encode_columns(shown)
    return compare_digest(_digest(challenged, expected), proof[-_DIGEST_BYTES:])


def _digest(challenged: bytes, fingerprints: Octets) -> bytes:
    return derive(challenged, "rows", fingerprints.tobytes())


def _fingerprints(challenged: bytes, columns: Octets) -> Octets:
    """GHASH of each column at three points.

    The tag of GCM is GHASH of the data plus a term that depends on key and length only. XOR with
    the tag of zeros removes that term and leaves a linear map.
    """
    length, points = columns.shape[1], []
    for point in range(_POINTS):
        gcm = AESGCM(derive(challenged, "point", point))
        zeros = gcm.encrypt(_NONCE, b"", bytes(length))
        tags = b"".join([gcm.encrypt(_NONCE, b"", column.tobytes()) for column in columns])
        octets = np.frombuffer(tags, np.uint8).reshape(-1, _FIELD_BYTES)
        points.append(octets ^ np.frombuffer(zeros, np.uint8))
    return np.hstack(points)
