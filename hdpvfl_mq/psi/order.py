"""The common order of common rows.

It owns the sort key and its check; it knows no matching. Every party sorts its own common ids by a
keyed hash with the run's seed: no message is needed, and the order says nothing about the order in
which any party keeps its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import OBJECT_ROWS, Allocate, Positions, chunks, group
from hdpvfl_mq.engine.port import Engine
from hdpvfl_mq.psi.packed import PackedIds, each_part

_PART_BITS = 16  # rows sorted at a time


def row_order(
    ids: Sequence[bytes],
    seed: bytes,
    allocate: Allocate = np.empty,
    engine: Engine | None = None,
) -> Positions:
    """Positions that sort distinct ids into the order that all parties share."""
    keys = allocate((len(ids), 2), np.uint64)
    for part, hashed in each_part(sort_keys, ids, seed, engine):
        keys[part] = hashed
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


def sort_keys(ids: PackedIds, seed: bytes) -> NDArray[np.uint64]:
    """A keyed hash of each id: what a worker of an engine computes.

    To copy a keyed state takes half the time of making one.
    """
    empty, keys = blake2b(digest_size=16, key=seed, person=b"hdpvfl row order"), bytearray()
    for part in chunks(len(ids), OBJECT_ROWS):
        for each in ids[part]:
            state = empty.copy()
            state.update(each)
            keys += state.digest()
    return np.frombuffer(bytes(keys), dtype=">u8").reshape(-1, 2)


def order_digest(ids_in_order: Sequence[bytes], key: bytes) -> bytes:
    """32 bytes, equal at two parties exactly when they hold the same ids in the same order.

    *Guarantee*: without the key nobody can test guessed ids against it.
    """
    digest = blake2b(digest_size=32, key=key, person=b"hdpvfl order sum")
    packed = ids_in_order if isinstance(ids_in_order, PackedIds) else PackedIds.of(ids_in_order)
    for part in chunks(len(packed), OBJECT_ROWS):
        digest.update(packed.with_lengths(part))
    return digest.digest()
