"""Reads a ledger file: its entries in order, with every link and rule checked again.

It owns reading and checking the stored rows; it writes nothing.
"""

from __future__ import annotations

import sqlite3

from hdpvfl_mq.errors import IntegrityError, RefusedError
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, Books, Entry, apply, decode, extend
from schemas.privacy import LedgerHead, ReleaseBooked


def folded(connection: sqlite3.Connection) -> tuple[Books, LedgerHead]:
    """Fold the stored entries; check sequence, hashes, rules, release ids and co-signatures."""
    books, head = Books(), EMPTY_LEDGER
    rows = connection.execute("SELECT * FROM entry ORDER BY sequence")
    for sequence, digest, release_id, body, opening in rows:
        if not isinstance(body, bytes) or not isinstance(opening, bytes | None):
            raise IntegrityError(f"entry {sequence} of the ledger was rewritten")
        head, entry = extend(head, body, opening), decode(body)
        if (sequence, digest) != (head.sequence, head.digest):
            raise IntegrityError(f"the ledger's chain is broken at entry {head.sequence}")
        if release_id != release_id_of(entry):
            raise IntegrityError(f"entry {sequence} is filed under another release id")
        try:
            apply(books, entry)
        except RefusedError as error:
            raise IntegrityError(f"entry {sequence} breaks the ledger's rules") from error
        if (opening is None) != (books.secret_check is None):
            raise IntegrityError(f"entry {sequence} is not a commitment like its neighbours")
    for peer, sequence, digest, _ in connection.execute("SELECT * FROM cosignature"):
        if sequence > head.sequence or digest_at(connection, sequence) != digest:
            raise IntegrityError(f"{peer} co-signed a head this ledger does not have")
    return books, head


def digest_at(connection: sqlite3.Connection, sequence: int) -> bytes | None:
    """The digest of the entry with this sequence number, or None."""
    if sequence == 0:
        return EMPTY_LEDGER.digest
    row = connection.execute("SELECT digest FROM entry WHERE sequence = ?", (sequence,))
    found = row.fetchone()
    return None if found is None else bytes(found[0])


def release_id_of(entry: Entry) -> str | None:
    """The release id that an entry is stored under, or None."""
    return entry.event.release_id if isinstance(entry, ReleaseBooked) else None
