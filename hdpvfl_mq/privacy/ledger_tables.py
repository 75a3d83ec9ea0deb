"""The tables of a ledger file in all its formats, and the translation of SQLite errors.

It owns the file's schema and the migration of older files; it knows no rule of the ledger. Entries
of format 1 have no opening, even after migration.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from hdpvfl_mq.durable import make_private
from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger_sketch import IdSketch

FORMAT = 2  # PRAGMA user_version; format 1 did not set it
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS owner (party TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS entry (sequence INTEGER PRIMARY KEY, digest BLOB NOT NULL,"
    " release_id TEXT, body BLOB NOT NULL, opening BLOB)",
    "CREATE INDEX IF NOT EXISTS entry_release ON entry (release_id) WHERE release_id IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS cosignature (peer TEXT PRIMARY KEY, sequence INTEGER NOT NULL,"
    " digest BLOB NOT NULL, signature BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS remembered (peer TEXT PRIMARY KEY, sequence INTEGER NOT NULL,"
    " digest BLOB NOT NULL, signature BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sketch (dataset TEXT PRIMARY KEY, secret BLOB NOT NULL,"
    " mark TEXT NOT NULL, hashes BLOB NOT NULL)",
    # Entries of the account of scored people that its own file may lose with the power.
    "CREATE TABLE IF NOT EXISTS unsynced (sequence INTEGER PRIMARY KEY, body BLOB NOT NULL,"
    " opening BLOB NOT NULL)",
)
UnsyncedEntry = tuple[int, bytes, bytes]  # sequence, body, opening

_REMEMBERED_UNSIGNED = 3  # columns of table `remembered` before heads were signed
_ENTRY_UNKEYED = 4  # columns of table `entry` in format 1


def connected(path: str | Path) -> sqlite3.Connection:
    """Connect to a ledger file; it is readable by its owner only, also one from a backup."""
    try:
        if str(path) != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            make_private(Path(path))
        return sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise OperatorError(f"the ledger {path} cannot be opened: {error}") from error


def make_tables(connection: sqlite3.Connection) -> None:
    """Create missing tables and migrate older formats; recorded spends do not change."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise OperatorError(
            f"the ledger has format {version}, this program knows {FORMAT}: use a newer one"
        )
    # A remembered head without its owner's signature proves nothing.
    if _columns(connection, "remembered") == _REMEMBERED_UNSIGNED:
        connection.execute("DROP TABLE remembered")
    if _columns(connection, "entry") == _ENTRY_UNKEYED:
        connection.execute("ALTER TABLE entry ADD COLUMN opening BLOB")
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def claim(connection: sqlite3.Connection, party: str) -> None:
    """Write the owner's name into a new ledger; refuse another party's."""
    row = connection.execute("SELECT party FROM owner").fetchone()
    if row is None:
        connection.execute("INSERT INTO owner VALUES (?)", (party,))
    elif row[0] != party:
        raise OperatorError(f"this ledger belongs to {row[0]}; give {party} its own file")


def owner_of(path: Path) -> str:
    """The name of the party that owns a ledger file."""
    try:
        connection = sqlite3.connect(path, timeout=0.0)
        try:
            row = connection.execute("SELECT party FROM owner").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translated(error) from error
    if row is None:
        raise IntegrityError(f"{path} does not say whose ledger it is")
    return str(row[0])


def sketches_in(connection: sqlite3.Connection, check: bytes) -> dict[str, tuple[str, IdSketch]]:
    """Fingerprint of the last rows and sketch of all rows, by data set, made with this secret."""
    rows = connection.execute("SELECT dataset, mark, hashes FROM sketch WHERE secret = ?", (check,))
    try:
        return {
            dataset: (mark, IdSketch(np.frombuffer(hashes, dtype="<u8").astype(np.uint64)))
            for dataset, mark, hashes in rows
        }
    except (ValueError, TypeError) as broken:
        raise IntegrityError("a sketch of ids in the ledger is damaged; keep the file") from broken


def store_sketch(
    connection: sqlite3.Connection, dataset: str, check: bytes, kept: tuple[str, IdSketch]
) -> None:
    """Replace the stored sketch of a data set's ids."""
    mark, ids = kept
    row = (dataset, check, mark, ids.hashes.astype("<u8").tobytes())
    connection.execute("INSERT OR REPLACE INTO sketch VALUES (?, ?, ?, ?)", row)


def translated(error: sqlite3.Error) -> OperatorError | IntegrityError:
    """Translate an SQLite error into the error class that says who must react."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return OperatorError(
            "the ledger is in use by another process; stop that one, one party has one process"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH):
        return IntegrityError(f"the ledger file is damaged; keep it and stop: {error}")
    return OperatorError(f"the ledger cannot be written; stop, nothing may be sent: {error}")


def _columns(connection: sqlite3.Connection, table: str) -> int:
    found = connection.execute("SELECT count(*) FROM pragma_table_info(?)", (table,))
    return int(found.fetchone()[0])
