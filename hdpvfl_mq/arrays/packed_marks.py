"""Marks as bytes, eight in each, the first mark in the highest bit.

It owns packing and unpacking; it does not know what is marked, nor how many bytes a peer should
have sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pack_marks(mask: NDArray[np.bool_]) -> bytes:
    """A bit for each mark."""
    return np.packbits(mask).tobytes()


def unpack_marks(packed: bytes, count: int) -> NDArray[np.bool_]:
    """The first `count` marks; those beyond the bytes are not set."""
    if not packed:  # numpy would return memory that nobody has written
        return np.zeros(count, dtype=np.bool_)
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=count).astype(np.bool_)
