"""Keyed randomness.

It owns how one secret becomes many independent keys and streams; it keeps no state. It draws
nothing from the system: the caller's 32 bytes decide everything, so a replay of a journal makes the
same bytes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Octets = NDArray[np.uint8]
_FROM_ZERO = modes.CTR(bytes(16))  # a session expands thousands of keys


def derive(key: bytes, *labels: str | bytes | int) -> bytes:
    """A 32-byte key that belongs to these labels alone."""
    digest = blake2b(digest_size=32, key=key)
    for label in labels:
        data = label if isinstance(label, bytes) else str(label).encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.digest()


def digests(prefix: bytes, parts: Iterable[bytes]) -> Words:
    """BLAKE2b of the prefix and each part, 128 bits, one row for each.

    A copy of a hash that has taken in the prefix costs half as much as a new one.
    """
    begin, hashed = blake2b(prefix, digest_size=16).copy, list[bytes]()
    for part in parts:
        digest = begin()
        digest.update(part)
        hashed.append(digest.digest())
    return np.frombuffer(b"".join(hashed), dtype="<u8").reshape(-1, 2)


def expand(key: bytes, size: int) -> bytes:
    """The first `size` bytes of the key's stream (AES-256 in counter mode)."""
    return Cipher(algorithms.AES(key), _FROM_ZERO).encryptor().update(bytes(size))


def random_pairs(key: bytes, count: int) -> Words:
    """`count` rows of 128 random bits."""
    return np.frombuffer(expand(key, 16 * count), dtype="<u8").reshape(-1, 2)


def permute_pairs(key: bytes, pairs: Words) -> Words:
    """AES of every 128-bit row: a pseudo-random function of far fewer than 2^64 rows."""
    cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305 - a function of single blocks
    blocks = cipher.encryptor().update(pairs.tobytes())
    return np.frombuffer(blocks, dtype="<u8").reshape(-1, 2)
