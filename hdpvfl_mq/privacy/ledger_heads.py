"""Heads of ledgers that parties witness for each other: co-signatures of this one, heads of peers.

It owns these two tables of a ledger file and the check of a restored file against them; the entries
are in ledger_store.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER
from hdpvfl_mq.privacy.ledger_rows import digest_at
from hdpvfl_mq.privacy.ledger_tables import UnsyncedEntry, translated
from schemas.privacy import Cosignature, LedgerHead

# No party can have this name; the head of the account of scored people is stored under it.
ACCOUNT = "scored people"
_NEWEST = (
    " VALUES (?, ?, ?, ?) ON CONFLICT (peer) DO UPDATE SET sequence = excluded.sequence,"
    " digest = excluded.digest, signature = excluded.signature WHERE excluded.sequence > sequence"
)


class LedgerHeads:
    """The witnessed heads in one ledger file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db, self._broken = connection, False
        self._head = EMPTY_LEDGER  # until the entries are folded

    def head(self) -> LedgerHead:
        """The head for peers to co-sign."""
        return self._head

    def has_head(self, head: LedgerHead) -> bool:
        """Whether this was the head once; False in an older copy of the file."""
        return digest_at(self._db, head.sequence) == head.digest

    def record(self, cosignature: Cosignature) -> None:
        """Store a peer's signature of one of this ledger's heads; keeps the newest per peer."""
        head = cosignature.head
        if digest_at(self._db, head.sequence) != head.digest:
            raise IntegrityError(f"{cosignature.peer} co-signed a head this ledger never had")
        row = (cosignature.peer, head.sequence, head.digest, cosignature.signature)
        self._write(lambda: self._db.execute("INSERT INTO cosignature" + _NEWEST, row))

    def remember(self, peer: str, head: LedgerHead, signature: bytes) -> None:
        """Store the newest head of a peer's own ledger, to show to that peer in later runs."""
        row = (peer, head.sequence, head.digest, signature)
        self._write(lambda: self._db.execute("INSERT INTO remembered" + _NEWEST, row))

    def remember_scored(
        self, head: LedgerHead, entries: Sequence[UnsyncedEntry], synced: int
    ) -> None:
        """Store the head of the account of scored people, and entries that its file may lose.

        Those up to number `synced` are safe in that file and are dropped here.
        """

        def store() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            row = (ACCOUNT, head.sequence, head.digest, bytes(64))
            self._db.execute("INSERT INTO remembered" + _NEWEST, row)
            self._db.executemany("INSERT OR REPLACE INTO unsynced VALUES (?, ?, ?)", entries)
            self._db.execute("DELETE FROM unsynced WHERE sequence <= ?", (synced,))
            self._db.execute("COMMIT")

        self._write(store)

    def unsynced(self) -> list[UnsyncedEntry]:
        """Entries of the account of scored people that its file may have lost, in order."""
        try:
            rows = self._db.execute("SELECT * FROM unsynced ORDER BY sequence").fetchall()
        except sqlite3.Error as error:
            raise translated(error) from error
        return [(sequence, body, opening) for sequence, body, opening in rows]

    def forget_scored(self) -> None:
        """Remove head and entries of the account of scored people, which starts again from zero."""

        def forget() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM remembered WHERE peer = ?", (ACCOUNT,))
            self._db.execute("DELETE FROM unsynced")
            self._db.execute("COMMIT")

        self._write(forget)

    def remembered(self) -> dict[str, tuple[LedgerHead, bytes]]:
        """The newest head of each peer's ledger, with that peer's signature."""
        try:
            rows = self._db.execute(
                "SELECT peer, sequence, digest, signature FROM remembered"
            ).fetchall()
        except sqlite3.Error as error:
            raise translated(error) from error
        return {
            peer: (LedgerHead(sequence=sequence, digest=digest), signature)
            for peer, sequence, digest, signature in rows
        }

    def check_restored(self, peer_heads: Mapping[str, LedgerHead]) -> None:
        """Refuse a file that is older than, or differs from, a head that a peer co-signed."""
        for peer, head in peer_heads.items():
            if head.sequence > self._head.sequence:
                raise IntegrityError(
                    f"{peer} co-signed entry {head.sequence} of this ledger, which ends at "
                    f"{self._head.sequence}: it is an older copy. Put the newest file back"
                )
            if digest_at(self._db, head.sequence) != head.digest:
                raise IntegrityError(f"{peer} co-signed a different entry {head.sequence}")

    def _write(self, statement: Callable[[], object]) -> None:
        if self._broken:
            raise OperatorError(
                "an earlier ledger write failed: nothing more may be sent; restart this process"
            )
        try:
            statement()
        except sqlite3.Error as error:
            self._broken = True
            raise translated(error) from error
