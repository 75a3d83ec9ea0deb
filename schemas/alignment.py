"""An alignment a party keeps between runs: which of its rows are common, and the key all share.

It owns the shape on disk; it knows no file. An alignment is as private as the ids themselves and
never leaves the party. Only a hash of the shared key leaves; by it parties find out that they keep
the same alignment.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Digest, Strict
from schemas.ids import MAX_PASSIVES, PartyId
from schemas.tensor import Tensor

_DOMAIN = b"hdpvfl-mq alignment 1\x00"


class KeptAlignment(Strict):
    """The result of one entity resolution, valid only for the same ids, parties and id rules.

    It does not depend on other cells: a party says whether it keeps one, and no cell may decide
    that.
    """

    format: Literal[2] = 2
    ids_digest: Digest  # of this party's distinct ids in their order; in format 1 of all its rows
    parties: Annotated[tuple[PartyId, ...], Field(min_length=2, max_length=MAX_PASSIVES + 1)]
    id_profile_digest: Digest
    shared_key: Annotated[Digest, Field(repr=False)]  # all parties know it, the broker does not
    positions: Annotated[Tensor, Field(repr=False)]  # among this party's distinct ids, ascending

    @property
    def name(self) -> bytes:
        """32 bytes, equal at all parties that took part; they say nothing about any id."""
        return hashlib.sha256(_DOMAIN + self.shared_key).digest()
