"""A sketch of a party's ids: the ledger recognises the same people in another data set.

It owns the hashes that are kept and the comparison of two sketches; it knows no file. A sketch
holds the smallest hashes of all ids, keyed by the ledger's secret: nobody can look up an id without
the secret. A sketch of up to SIZE ids holds them all. A sketch of more ids is a sample, and every
sketch samples the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import OBJECT_ROWS, chunks
from hdpvfl_mq.arrays.distinct import union
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret

SIZE = 1 << 16
ASKED_FROM = 0.1  # the operator must decide from this share of common ids on
_LAST = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class IdSketch:
    """The smallest hashes, ascending, at most SIZE."""

    hashes: NDArray[np.uint64] = field(
        default_factory=lambda: np.zeros(0, dtype=np.uint64), repr=False
    )

    @property
    def reach(self) -> np.uint64:
        """The largest hash that the sketch covers: every id with a hash up to it is included."""
        return self.hashes[-1] if len(self.hashes) == SIZE else _LAST

    def joined(self, other: IdSketch) -> IdSketch:
        """The sketch of the union of both sets of ids."""
        return IdSketch(union(self.hashes, other.hashes)[:SIZE])


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
    """The larger of the two sets' shares of common ids; exact if both sketches hold all ids."""
    reach = min(one.reach, other.reach)
    mine, theirs = (each.hashes[each.hashes <= reach] for each in (one, other))
    if not len(mine) or not len(theirs):
        return 0.0
    common = len(np.intersect1d(mine, theirs, assume_unique=True))
    return common / min(len(mine), len(theirs))


def same_people(dataset: str, other: str, share: float) -> str:
    """What an operator must decide about two data sets of the same people."""
    return (
        f"policy.dataset: {dataset} and {other} share {share:.0%} of the smaller one's ids, and "
        f"{other} has a budget already: what is spent on both adds up for these people. If they "
        f'are the same people, set dataset = "{other}". If they are not, or you answer for the '
        f'sum, set budget_apart_from = ["{other}"]'
    )
