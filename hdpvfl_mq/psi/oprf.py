"""Oblivious pseudo-random functions.

It owns what the two constructions share. The asker (active party) learns F(x) for its own elements,
the answerer (passive party) can compute F(y) for any element and learns nothing. Both sides get
128-bit outputs. The star of `active.py` and `passive.py` needs only these two interfaces;
`dh_oprf.py` and `ot_oprf.py` each provide the pair.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.psi.curve import in_blocks
from hdpvfl_mq.psi.stream import Words, digests

_HASHED_ROWS = 1 << 13  # of a bucket, hashed at a time


class Lengths(Protocol):
    """Lengths of the messages of a query, which both sides know."""

    def query_bytes(self, count: int) -> int:
        """Length of a query for `count` elements."""

    def reply_bytes(self, count: int) -> int:
        """Length of the reply to it."""


class Query(Protocol):
    """The query of one bucket of the active party's elements, for every peer."""

    @property
    def elements(self) -> Words:
        """The bucket's elements and dummies."""

    def sent_to(self, peer: str, agreed: Any) -> bytes:
        """The query in the form for this peer."""

    def outputs(self, peer: str, agreed: Any, reply: bytes) -> Words:
        """F(x) of the elements under this peer's key; PeerError on a malformed reply."""


class Asker(Protocol):
    """The active party's side, one for all its peers."""

    def opening(self, peer: str) -> bytes:
        """The message that the peer needs before it can choose."""

    def agree(self, peer: str, choice: bytes) -> Any:
        """This side's state after the peer's choice; PeerError if the choice is malformed."""

    def prepare(self, bucket: int, elements: Words) -> Query:
        """Do the work on a bucket that serves all peers."""


class Answerer(Protocol):
    """A passive party's side, towards the active party."""

    def choose(self, opening: bytes) -> tuple[bytes, Any]:
        """The reply to the asker's opening, and this side's state; PeerError if malformed."""

    def answer(
        self, agreed: Any, bucket: int, query: bytes, count: int, elements: Words
    ) -> tuple[bytes, Words]:
        """The reply to a query for `count` elements, and F(y) of the answerer's own elements.

        PeerError if the query is malformed, CheatingError if its proof fails.
        """


def hash_rows(rows: Words, elements: Words, engine: Engine | None = None) -> Words:
    """128 bits of each secret row with its element."""
    records = np.hstack([rows, elements])
    pieces = ((records[part],) for part in chunks(len(records), _HASHED_ROWS))
    hashed = list((engine or LocalEngine()).each(hashed_records, pieces))
    return np.concatenate(hashed) if hashed else np.empty((0, 2), dtype="<u8")


def hashed_records(records: Words) -> Words:
    """128 bits of each record: what a worker of an engine computes."""
    return digests(b"", in_blocks(records.tobytes(), 8 * records.shape[1]))
