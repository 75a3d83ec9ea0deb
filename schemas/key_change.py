"""A party's replaced keys: the old key's signature of the new one.

It owns the shape of the file `changes.json` in a key folder; it checks no signature.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Strict
from schemas.config import HexKey
from schemas.ids import PartyId

HexSignature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
CHANGES_MAX = 256


class KeyChange(Strict):
    """One replacement, signed by the old key and by the new one."""

    party: PartyId
    former_key: HexKey  # a signing key, like verify_key
    verify_key: HexKey
    curve_key: HexKey
    former_signature: HexSignature
    signature: HexSignature


class KeyChanges(Strict):
    """Every replacement of one party's keys, oldest first."""

    party: PartyId
    changes: Annotated[tuple[KeyChange, ...], Field(min_length=1, max_length=CHANGES_MAX)]
