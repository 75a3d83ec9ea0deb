"""A SQLite file of one process whose commits are on disk when they return.

It owns how ledgers, accounts and journals open their files; it knows no table.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

# A commit that makes its file longer also waits for the file system to write that down. The log is
# made this long once and is written from the front again before it is full; SQLite reads nothing
# behind its last commit. A longer log would not stay in the processor's cache.
LOG_BYTES = 2**20


def make_private(path: Path) -> None:
    """Make sure the file exists and only its owner can read it, also one from a backup.

    SQLite gives its own files beside it (-wal, -shm) the same mode.
    """
    path.touch(mode=0o600)
    path.chmod(0o600)


def make_exclusive(connection: sqlite3.Connection) -> None:
    """Make commits durable and lock the file: no other process can open it from now on."""
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_BYTES // page_bytes}")
    _lengthen_log(connection)


def _lengthen_log(connection: sqlite3.Connection) -> None:
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    if not file:  # in memory
        return
    # On a full disk SQLite itself will say so, when a commit needs the space.
    with suppress(OSError), Path(f"{file}-wal").open("r+b") as log:
        log.write(bytes(max(0, LOG_BYTES - log.seek(0, 2))))
