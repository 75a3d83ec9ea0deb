"""What a node needs from the world: an identity, contacts, a store for records, a ledger.

It owns these four shapes; it knows no implementation of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.wire.codec import Frames
from schemas.ids import PartyId, RoleName, RunId
from schemas.privacy import LedgerHead, Release
from schemas.records import Arm, LedgerStanding, Reserve


@dataclass(frozen=True)
class Identity:
    """Who this node is."""

    party: PartyId
    role: RoleName
    run: RunId
    signing_key: SigningKey = field(repr=False)


@dataclass(frozen=True)
class Contact:
    """A peer's role and the key its envelopes verify with."""

    role: RoleName
    verify_key: VerifyKey


class RecordStore(Protocol):
    """What a node needs of a journal."""

    def records(self, first: int = 0) -> Iterable[tuple[int, bytes, bytes]]: ...

    def commit(self, records: Sequence[tuple[int, bytes, bytes]]) -> None: ...

    def close(self) -> None: ...


class LedgerPort(Protocol):
    """What a node needs of a privacy ledger; booking the same release twice is booking it once."""

    def standing(self) -> LedgerStanding: ...

    def reserve(self, reservation: Reserve) -> None: ...

    def book(self, releases: Sequence[Release]) -> None: ...

    def remember(self, party: PartyId, head: LedgerHead, signature: bytes) -> None: ...

    def check_restored(self, party: PartyId, head: LedgerHead, signature: bytes) -> None: ...


@dataclass(frozen=True)
class Turn:
    """What one pump turn wants done, now that it is on disk."""

    send: tuple[Frames, ...]
    arm: tuple[Arm, ...]
    outcome: str | None
