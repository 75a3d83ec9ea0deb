"""A sketch of a party's ids, by which its ledger knows people again under another name.

It owns the hashes that are kept and what two sketches say together; it knows no file. A sketch is
the smallest hashes of all ids, keyed by the ledger's secret: nobody without it can look an id up.
Up to SIZE ids a sketch holds them all; of more it is a sample, the same ids in every sketch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import OBJECT_ROWS, chunks
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret

SIZE = 1 << 16
ASKED_FROM = 0.1  # the share of common ids from which the operator is asked
_LAST = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class IdSketch:
    """The smallest hashes, ascending, at most SIZE."""

    hashes: NDArray[np.uint64] = field(
        default_factory=lambda: np.zeros(0, dtype=np.uint64), repr=False
    )

    @property
    def reach(self) -> np.uint64:
        """Every id whose hash is not above this is in the sketch."""
        return self.hashes[-1] if len(self.hashes) == SIZE else _LAST

    def joined(self, other: IdSketch) -> IdSketch:
        """The sketch of both sets of ids together."""
        return IdSketch(np.union1d(self.hashes, other.hashes)[:SIZE])


def sketch(ids: Sequence[bytes], secret: LedgerSecret) -> IdSketch:
    """The sketch of these ids."""
    found, waiting, count = IdSketch(), list[NDArray[np.uint64]](), 0
    for part in chunks(len(ids), OBJECT_ROWS):
        hashed = np.frombuffer(secret.id_hashes(ids[part]), dtype="<u8").astype(np.uint64)
        waiting.append(hashed[hashed <= found.reach])
        count += len(waiting[-1])
        if count >= SIZE or part.stop == len(ids):
            found = found.joined(IdSketch(np.concatenate(waiting)))
            waiting, count = [], 0
    return found


def shared(one: IdSketch, other: IdSketch) -> float:
    """The share of ids in common, of the set where it is larger; exact if both hold all ids."""
    reach = min(one.reach, other.reach)
    mine, theirs = (each.hashes[each.hashes <= reach] for each in (one, other))
    if not len(mine) or not len(theirs):
        return 0.0
    common = len(np.intersect1d(mine, theirs, assume_unique=True))
    return common / min(len(mine), len(theirs))
