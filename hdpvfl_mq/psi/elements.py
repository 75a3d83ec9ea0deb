"""Ids as 128-bit elements in buckets.

It owns hashing, padding, bucket sizes and joins; it sends nothing. Elements are a public hash of
ids: anybody can compute them from a guess, so they never leave a party in the clear. Sizes are
padded so that peers learn a set's size only to about 6 per cent. With buckets, a large run needs
the memory of one bucket, small enough for a processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import OBJECT_ROWS, Allocate, Groups, chunks, group
from hdpvfl_mq.engine.port import Engine
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.psi.packed import PackedIds, each_part
from hdpvfl_mq.psi.stream import Words, derive, digests, random_pairs

MAX_IDS = 1 << 30
_SMALLEST_PADDED = 64
_DEVIATIONS = 8  # a bucket of random elements overflows this with probability below 2^-49


def hash_ids(
    ids: Sequence[bytes],
    public_seed: bytes,
    allocate: Allocate = np.empty,
    engine: Engine | None = None,
) -> Words:
    """One 128-bit element per id."""
    key = derive(public_seed, "psi element")
    elements = allocate((len(ids), 2), "<u8")
    for part, hashed in each_part(hashed_part, ids, key, engine):
        elements[part] = hashed
    return elements


def hashed_part(ids: PackedIds, key: bytes) -> Words:
    """The elements of some ids: what a worker of an engine computes."""
    return digests(key, (each for part in chunks(len(ids), OBJECT_ROWS) for each in ids[part]))


def padded_size(size: int) -> int:
    """The size shown to peers: rounded up to a multiple of 1/16 of the leading power of two."""
    step = max(_SMALLEST_PADDED, 1 << max(0, size.bit_length() - 5))
    return max(1, -(-size // step)) * step


def bucket_count(padded_sizes: Iterable[int], bucket_ids: int) -> int:
    """Number of buckets into which every party splits its set."""
    return max(1, -(-max(padded_sizes) // bucket_ids))


def bucket_capacity(padded: int, buckets: int) -> int:
    """Elements, dummies included, that a party of this padded size puts into every bucket."""
    if buckets == 1:
        return padded
    mean = padded / buckets
    largest = math.ceil(mean + _DEVIATIONS * math.sqrt(mean)) + 32
    return -(-largest // _SMALLEST_PADDED) * _SMALLEST_PADDED


def split_buckets(elements: Words, buckets: int, allocate: Allocate = np.empty) -> Groups:
    """Positions of the elements of each bucket."""

    def number(part: slice) -> Words:
        leading: Words = elements[part, 0] >> np.uint64(32)
        return (leading * np.uint64(buckets)) >> np.uint64(32)

    return group(number, len(elements), groups=buckets, allocate=allocate)


def fill_bucket(real: Words, capacity: int, key: bytes) -> Words:
    """The bucket's elements followed by random dummies up to its capacity."""
    if len(real) > capacity:
        raise IntegrityError("a bucket of ids is overfull: start the run again with a new seed")
    return np.concatenate([real, random_pairs(key, capacity - len(real))])


def find_pairs(wanted: Words, among: Words) -> NDArray[np.intp]:
    """The position of each wanted 128-bit row among distinct rows, or -1."""
    order = np.argsort(among[:, 0], kind="stable")
    leading = among[order, 0]
    place = np.searchsorted(leading, wanted[:, 0])
    found = np.full(len(wanted), -1, dtype=np.intp)
    open_rows = np.arange(len(wanted))
    while open_rows.size:  # loops again only if two rows share their leading 64 bits
        open_rows = open_rows[place[open_rows] < len(leading)]
        open_rows = open_rows[leading[place[open_rows]] == wanted[open_rows, 0]]
        candidate = order[place[open_rows]]
        hit = among[candidate, 1] == wanted[open_rows, 1]
        found[open_rows[hit]] = candidate[hit]
        open_rows = open_rows[~hit]
        place[open_rows] += 1
    return found
