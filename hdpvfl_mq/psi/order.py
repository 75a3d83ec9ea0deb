"""The common order of common rows. Owns the sort key and its check; knows no matching.

Every party sorts its own common ids by a keyed hash with the run's seed: no message is needed, and
the order says nothing about the order in which any party keeps its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from hdpvfl_mq.arrays.chunked import OBJECT_ROWS, Allocate, Positions, chunks, group
from hdpvfl_mq.psi.packed import PackedIds

_PART_BITS = 16  # rows sorted at a time


def row_order(ids: Sequence[bytes], seed: bytes, allocate: Allocate = np.empty) -> Positions:
    """Positions that sort distinct ids into the order that all parties share."""
    keys = allocate((len(ids), 2), np.uint64)
    for part in chunks(len(ids), OBJECT_ROWS):
        keys[part] = np.frombuffer(_keys(ids[part], seed), dtype=">u8").reshape(-1, 2)
    bits = max(1, len(ids).bit_length() - _PART_BITS)
    shift = np.uint64(64 - bits)
    parts = group(
        lambda part: keys[part, 0] >> shift, len(ids), groups=1 << bits, allocate=allocate
    )
    order = parts.positions
    for number, positions in enumerate(parts):
        words = keys[positions]
        within = np.lexsort((words[:, 1], words[:, 0]))
        order[parts.bounds[number] : parts.bounds[number + 1]] = positions[within]
    return order


def _keys(ids: Sequence[bytes], seed: bytes) -> bytes:
    """A keyed hash of each id; to copy a keyed state takes half the time of making one."""
    empty, keys = blake2b(digest_size=16, key=seed, person=b"hdpvfl row order"), bytearray()
    for each in ids:
        state = empty.copy()
        state.update(each)
        keys += state.digest()
    return bytes(keys)


def order_digest(ids_in_order: Sequence[bytes], key: bytes) -> bytes:
    """32 bytes, equal at two parties exactly when they hold the same ids in the same order.

    *Guarantee*: without the key nobody can test guessed ids against it.
    """
    digest = blake2b(digest_size=32, key=key, person=b"hdpvfl order sum")
    packed = ids_in_order if isinstance(ids_in_order, PackedIds) else PackedIds.of(ids_in_order)
    for part in chunks(len(packed), OBJECT_ROWS):
        digest.update(packed.with_lengths(part))
    return digest.digest()
