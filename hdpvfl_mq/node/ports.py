"""What a node needs from outside: an identity, contacts, a store for records, a ledger.

It owns these four shapes; it knows no implementation of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.wire.codec import Frames
from hdpvfl_mq.wire.parts import Buffer, PartList
from schemas.ids import OLDEST_VERSION, PartyId, RoleName, RunId
from schemas.privacy import LedgerHead, Release
from schemas.records import Arm, Charge, Charged, LedgerStanding, Reserve, StepRecord


@dataclass(frozen=True)
class Identity:
    """Who this node is."""

    party: PartyId
    role: RoleName
    run: RunId
    signing_key: SigningKey = field(repr=False)
    later_keys: Mapping[bytes, SigningKey] = field(  # by public key; `SignWith` takes one of them
        default_factory=dict, repr=False
    )
    # Versions of the protocol that this node reads. A run has one, a federation's stream several.
    versions: tuple[int, int] = (OLDEST_VERSION, OLDEST_VERSION)


@dataclass(frozen=True)
class Contact:
    """A peer's role, the key its envelopes verify with, and the newest version it reads."""

    role: RoleName
    verify_key: VerifyKey
    version: int = OLDEST_VERSION


class RecordStore(Protocol):
    """What a node needs from a journal."""

    def records(self, first: int = 0) -> Iterable[tuple[int, bytes, bytes]]: ...

    def commit(self, records: Sequence[tuple[int, bytes, bytes]]) -> None: ...

    def keep_parts(self, parts: Iterable[tuple[bytes, Buffer]]) -> None: ...

    def part(self, digest: bytes) -> bytes | None: ...

    def missing_parts(self, parts: PartList) -> list[int]: ...

    def joined(self, parts: PartList) -> memoryview: ...

    def close(self) -> None: ...


# Makes something durable; when it returns, the bytes are on disk.
Write = Callable[[], None]


class LedgerPort(Protocol):
    """What a node needs from a privacy ledger; booking the same release again changes nothing.

    `booking` checks and enters releases, or raises; the function it returns makes them durable.
    `book_again` books, durably, those of a journal's releases that the ledger does not have.
    `charge` counts a query; the function it returns makes that count durable. `charge_again` takes
    every record of a journal and counts, durably, a query that the account does not have. `heads`
    are those of ledger and account; an older copy of either does not have them.
    """

    def standing(self) -> LedgerStanding: ...

    def heads(self) -> tuple[LedgerHead, ...]: ...

    def has_heads(self, heads: Sequence[LedgerHead]) -> bool: ...

    def reserve(self, reservation: Reserve) -> None: ...

    def booking(self, releases: Sequence[Release]) -> Write: ...

    def book_again(self, releases: Sequence[Release]) -> None: ...

    def charge(self, charge: Charge) -> Write: ...

    def charged(self) -> Charged: ...

    def charge_again(self, record: StepRecord) -> None: ...

    def remember(self, party: PartyId, head: LedgerHead, signature: bytes) -> None: ...

    def check_restored(self, party: PartyId, head: LedgerHead, signature: bytes) -> None: ...


@dataclass(frozen=True)
class Turn:
    """What the caller must do after one pump turn, which is now on disk."""

    send: tuple[Frames, ...]
    arm: tuple[Arm, ...]
    outcome: str | None
    # Parts of large arrays that peers asked for, each read when it is taken: all that a crowd asks
    # for would not fit into memory. What the link has no room for, they ask for again.
    parts: Iterable[Frames] = ()
    parts_taken: int = 0
    # Peers whose next envelope must wait for another peer's message, and its number.
    stopped: tuple[tuple[PartyId, int], ...] = ()
    is_asking: bool = False  # parts of an envelope that has arrived are still missing
    waits: bool = False  # all of its records wait for a later commit, which brings an answer
