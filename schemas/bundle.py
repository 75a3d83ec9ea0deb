"""The index of an evidence bundle: its files, its run, when it was made and by whom.

It owns the fields of `evidence.json` and of `signatures.json`; it knows no zip file and no key.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Strict, Text
from schemas.config import Peer
from schemas.ids import PartyId, RunId

BUNDLE_FILES_MAX = 2_000  # a journal and a ledger for every party, and the members' keys

Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
# Relative, of plain names: no file of a bundle can be unpacked outside its folder.
FileName = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]{0,63}/)?[a-z]+\.(db|toml)$")
]


class BundleFile(Strict):
    """One file of a bundle."""

    name: FileName
    sha256: Hex32
    bytes: Count


class BundleIndex(Strict):
    """What a bundle holds; parties sign the digest of its bytes."""

    format: Literal[1] = 1
    run: RunId
    made_at: Text  # date and time in UTC, by the maker's clock
    version: Text
    journals: tuple[PartyId, ...]
    files: Annotated[tuple[BundleFile, ...], Field(max_length=BUNDLE_FILES_MAX)]


class BundleMembers(Strict):
    """Public keys of all parties, as in `members.toml`."""

    members: tuple[Peer, ...]


class BundleSignature(Strict):
    """One party's signature of the whole bundle."""

    party: PartyId
    signature: Hex64


class BundleSignatures(Strict):
    """The signatures of all parties that signed."""

    signatures: Annotated[tuple[BundleSignature, ...], Field(max_length=BUNDLE_FILES_MAX)]
