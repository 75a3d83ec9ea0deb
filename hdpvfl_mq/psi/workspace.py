"""A party's working data in entity resolution.

It owns the party's ids, its secret and arrays made from them. A session holds the state of the
exchange. The workspace computes every array with an entry for each id and remembers it. It is a
memo: it may be emptied at any time and computes the same arrays again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hdpvfl_mq.arrays.chunked import Allocate, Groups, Positions, marked, marks
from hdpvfl_mq.arrays.memo import Memo
from hdpvfl_mq.arrays.packed_marks import unpack_marks
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.psi.elements import hash_ids, split_buckets
from hdpvfl_mq.psi.stream import Words
from hdpvfl_mq.psi.toss import nonce_of


class Signatures(Protocol):
    """Signs as this party, and verifies what parties have signed."""

    def sign(self, statement: bytes) -> bytes:
        """This party's signature."""

    def is_signed(self, party: str, statement: bytes, signature: bytes) -> bool:
        """Whether a party has signed the statement."""


class Workspace(Memo):
    """One party's distinct normalised ids, and a secret that no other party or run shares.

    `allocate` makes the arrays with an entry for each id; `nonce` is the share of the public seed
    that the party has committed to; `engine` hashes; `signatures` are needed if hellos are relayed.
    """

    def __init__(
        self,
        ids: Sequence[bytes],
        secret: bytes,
        *,
        allocate: Allocate = np.empty,
        nonce: bytes | None = None,
        engine: Engine | None = None,
        signatures: Signatures | None = None,
    ) -> None:
        self.ids, self.secret, self.allocate = ids, secret, allocate
        self.engine, self.signatures = engine or LocalEngine(), signatures
        self.nonce = nonce_of(secret) if nonce is None else nonce
        super().__init__()

    def elements(self, seed: bytes) -> Words:
        """The ids as elements under a public seed."""
        return self.once("elements", seed, lambda: self._hashed(seed))

    def _hashed(self, seed: bytes) -> Words:
        return hash_ids(self.ids, seed, self.allocate, self.engine)

    def members(self, seed: bytes, buckets: int) -> Groups:
        """Positions of the ids in each bucket."""
        elements = self.elements(seed)
        return self.once(
            "members", (seed, buckets), lambda: split_buckets(elements, buckets, self.allocate)
        )

    def positions(self, members: Groups, found: Sequence[bytes]) -> Positions:
        """Positions of the ids whose bits are set in each bucket's marks, ascending."""
        is_common = marks(len(self.ids), self.allocate)
        for own, packed in zip(members, found, strict=True):
            is_common[own[unpack_marks(packed, len(own))]] = True
        return marked(is_common, self.allocate)
