"""The secret of a ledger: with it, heads hide entries and entries hide rows.

It owns the values derived from the secret and their names; it draws nothing and knows no file. The
secret never leaves the party, not even to an auditor: its holder can test guesses about rows.

- An opening per entry: shown with the entry, it proves that the entry is in the chain.
- A keyed fingerprint of rows: equal if and only if the same rows came back.
- A keyed digest of an exact payload: one payload under one release id.
- A keyed hash of each id, for the sketch that recognises known ids and for the account of scored
  people; a keyed hash of the model that scores them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

SECRET_BYTES = 32


@dataclass(frozen=True)
class LedgerSecret:
    """32 bytes from the operating system, drawn when the ledger is made."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) != SECRET_BYTES:
            raise ValueError(f"a ledger's secret has {SECRET_BYTES} bytes")

    def check(self) -> bytes:
        """A value that the ledger stores to recognise its secret."""
        return self._derived(b"ledger check 1")

    def opening(self, sequence: int, body: bytes) -> bytes:
        """The key of one entry's commitment; the same entry always has the same key."""
        return self._derived(b"ledger opening 1", sequence.to_bytes(8, "big"), body)

    def fingerprint(self, rows: bytes) -> str:
        """The keyed fingerprint that the ledger stores, from the unkeyed one of the rows."""
        return "keyed:" + self._derived(b"ledger rows 1", rows).hex()

    def payload(self, release_id: str, data: bytes | memoryview) -> bytes:
        """The keyed digest that the ledger stores for a payload without noise."""
        return self._derived(b"ledger exact 1", release_id.encode(), b"\x00", data)

    def model(self, weights: bytes) -> bytes:
        """An eight-byte keyed hash that distinguishes models."""
        return self._derived(b"ledger model 1", weights)[:8]

    def id_hashes(self, ids: Sequence[bytes]) -> bytes:
        """Eight bytes for each id."""
        empty = hashlib.blake2b(key=self.value, person=b"ledger ids 1", digest_size=8)
        found = bytearray()
        for each in ids:
            state = empty.copy()
            state.update(each)
            found += state.digest()
        return bytes(found)

    def _derived(self, purpose: bytes, *parts: bytes | memoryview) -> bytes:
        state = hashlib.blake2b(key=self.value, person=purpose, digest_size=32)
        for part in parts:
            state.update(part)
        return state.digest()
