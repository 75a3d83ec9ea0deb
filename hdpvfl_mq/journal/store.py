"""One run's journal of one party in SQLite: one commit per pump turn, then speak.

It owns the file, its durability and its lock; it knows no role. One connection per file (the
system's SQLite has a WAL bug that needs two), `synchronous=FULL`, exclusive lock. Any I/O error
stops the process: nothing is sent after it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.journal import chain
from schemas.records import JOURNAL_FORMAT, TurnedAway

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS records ("
    "idx INTEGER PRIMARY KEY, record BLOB NOT NULL, digest BLOB NOT NULL) STRICT",
)


def open_database(path: Path | str) -> sqlite3.Connection:
    """One exclusive, durable connection; a second process on the file is refused."""
    try:
        if str(path) != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            Path(path).touch(mode=0o600)  # -wal and -shm take the mode of the file
            Path(path).chmod(0o600)
        connection = sqlite3.connect(
            str(path), timeout=0.0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except OSError as broken:
        raise OperatorError(
            f"cannot open {path}: {broken.strerror}; check the folder and disk"
        ) from None
    except sqlite3.OperationalError as broken:
        if "locked" in str(broken):
            raise OperatorError(
                f"{path} is in use by another process; stop that one, or give this party "
                "a runs folder of its own"
            ) from None
        raise OperatorError(f"cannot open {path}: {broken}; check the folder and disk") from None
    except sqlite3.DatabaseError as broken:
        raise IntegrityError(f"{path} is not a readable journal: {broken}") from None
    return connection


class Journal:
    """Append-only records: all a process knows is in their chain."""

    def __init__(self, path: Path | str, *, run: str, party: str) -> None:
        self.path = path
        self._connection = open_database(path)
        with self._guard():
            # In one transaction: a crash in here must not leave half a stamp.
            self._connection.execute("BEGIN IMMEDIATE")
            for statement in TABLES:
                self._connection.execute(statement)
            self._stamp({"format": str(JOURNAL_FORMAT), "run": run, "party": party})
            self._connection.execute("COMMIT")

    def _stamp(self, expected: Mapping[str, str]) -> None:
        found = dict(self._connection.execute("SELECT key, value FROM meta"))
        if not found:
            self._connection.executemany("INSERT INTO meta VALUES (?, ?)", expected.items())
        elif found != dict(expected):
            raise OperatorError(
                f"{self.path} belongs to run {found.get('run')!r} of party {found.get('party')!r} "
                f"(format {found.get('format')}); choose another run or runs folder"
            )

    def records(self, first: int = 0) -> Iterator[tuple[int, bytes, bytes]]:
        """(index, stored bytes, digest) from index `first` on."""
        with self._guard():
            yield from self._connection.execute(
                "SELECT idx, record, digest FROM records WHERE idx >= ? ORDER BY idx", (first,)
            )

    def refusals(self) -> list[tuple[int, str, bytes]]:
        """What was turned away at the door: index of the record, reason, digest of the frames."""
        inputs = ((index, chain.decode(stored, index).input) for index, stored, _ in self.records())
        return [(index, i.reason, i.digest) for index, i in inputs if isinstance(i, TurnedAway)]

    def commit(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Everything of one pump turn, in one durable transaction."""
        with self._guard():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO records VALUES (?, ?, ?)", records)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _guard(self) -> _Guard:
        return _Guard(self.path)


class _Guard:
    """Turns a database error into a stop that names the file."""

    def __init__(self, path: Path | str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, broken: BaseException | None, trace: object) -> None:
        if isinstance(broken, sqlite3.OperationalError):
            raise OperatorError(
                f"writing or reading {self._path} failed ({broken}); free disk space or mend the "
                "disk, then start again: nothing was sent after the last commit"
            ) from broken
        if isinstance(broken, sqlite3.DatabaseError):
            raise IntegrityError(f"{self._path} is damaged: {broken}") from broken
