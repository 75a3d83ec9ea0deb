"""The common order of common rows. Owns the sort key and its check; knows no matching.

Every party sorts its own common ids by a keyed hash with the run's seed: no message is needed, and
the order says nothing about the order in which any party keeps its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def row_order(ids: Sequence[bytes], seed: bytes) -> NDArray[np.intp]:
    """Positions that put distinct ids into the order all parties share."""
    keys = b"".join(
        [
            blake2b(each, digest_size=16, key=seed, person=b"hdpvfl row order").digest()
            for each in ids
        ]
    )
    words = np.frombuffer(keys, dtype=">u8").reshape(-1, 2)
    return np.lexsort((words[:, 1], words[:, 0]))


def order_digest(ids_in_order: Iterable[bytes], key: bytes) -> bytes:
    """32 bytes, equal at two parties exactly when they hold the same ids in the same order.

    *Guarantee*: without the key it cannot be tested against guessed ids.
    """
    digest = blake2b(digest_size=32, key=key, person=b"hdpvfl order sum")
    for each in ids_in_order:
        digest.update(len(each).to_bytes(4, "big") + each)
    return digest.digest()
