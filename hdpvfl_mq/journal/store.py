"""One party's journal of one run in SQLite: one commit per pump turn, and only then send.

It owns the file, its durability and its lock; it knows no role. It opens one connection per file
(the system's SQLite has a WAL bug that needs two), with `synchronous=FULL` and an exclusive lock.
Any I/O error stops the process, and nothing is sent after it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hdpvfl_mq.durable import make_exclusive, make_private
from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal import parts as stored_parts
from hdpvfl_mq.wire.parts import Buffer, PartList
from schemas.records import JOURNAL_FORMAT, TurnedAway, Withheld

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS records ("
    "idx INTEGER PRIMARY KEY, record BLOB NOT NULL, digest BLOB NOT NULL) STRICT",
)
# Large pages halve the work on blocks of entity resolution, of 4 MiB, and small records cost the
# same. A file keeps the pages it was made with.
PAGE_BYTES = 2**14
CACHE_KIB = 512  # SQLite's own 2 MiB fill up with records that are not read again
_VERIFIED_ELSEWHERE = "1"  # the older format that scripts/verify_journal implements


def check_format(path: Path | str, meta: Mapping[str, str]) -> None:
    """OperatorError if another version of this program has written a journal, by its `meta`.

    Such a journal may be sound. One that states no number is left to the checks of evidence.
    """
    found = str(meta.get("format", ""))  # a file from elsewhere may hold a number
    if found == str(JOURNAL_FORMAT) or not (found.isascii() and found.isdecimal()):
        return
    verifier = "scripts/verify_journal, or with " if found == _VERIFIED_ELSEWHERE else ""
    raise OperatorError(
        f"{path} is a journal of format {found}, and this program reads format {JOURNAL_FORMAT} "
        f"only: read it with {verifier}the version that wrote it"
    )


def open_database(path: Path | str) -> sqlite3.Connection:
    """Open one exclusive, durable connection; a second process cannot open the file."""
    try:
        if str(path) != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            make_private(Path(path))
        connection = sqlite3.connect(
            str(path), timeout=0.0, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        make_exclusive(connection)
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
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
    """Append-only records; their chain holds everything a process knows."""

    def __init__(self, path: Path | str, *, run: str, party: str) -> None:
        self.path = path
        self._connection = open_database(path)
        with self._guard():
            # In one transaction: a crash must not leave tables without run and party.
            self._connection.execute("BEGIN IMMEDIATE")
            for statement in TABLES:
                self._connection.execute(statement)
            self._stamp({"format": str(JOURNAL_FORMAT), "run": run, "party": party})
            self._connection.execute("COMMIT")

    def _stamp(self, expected: Mapping[str, str]) -> None:
        found = dict(self._connection.execute("SELECT key, value FROM meta"))
        if not found:
            self._connection.executemany("INSERT INTO meta VALUES (?, ?)", expected.items())
            return
        check_format(self.path, found)
        if found != dict(expected):
            raise OperatorError(
                f"{self.path} belongs to run {found.get('run')!r} of party {found.get('party')!r}; "
                "choose another run or runs folder"
            )

    def records(self, first: int = 0) -> Iterator[tuple[int, bytes, bytes]]:
        """(index, stored bytes, digest) from index `first` on."""
        with self._guard():
            yield from self._connection.execute(
                "SELECT idx, record, digest FROM records WHERE idx >= ? ORDER BY idx", (first,)
            )

    def refusals(self) -> list[tuple[int, str]]:
        """Frames refused on arrival, or missing: index of the record, reason."""
        inputs = ((index, chain.decode(stored, index).input) for index, stored, _ in self.records())
        return [(index, i.reason) for index, i in inputs if isinstance(i, TurnedAway | Withheld)]

    def commit(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Write everything of one pump turn in one durable transaction."""
        with self._guard():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO records VALUES (?, ?, ?)", records)
            self._connection.execute("COMMIT")

    def keep_parts(self, parts: Iterable[tuple[bytes, Buffer]]) -> None:
        """Store parts of a large array under their digests, durably, before a record lists them."""
        with self._guard():
            stored_parts.keep(self._connection, parts)

    def part(self, digest: bytes) -> bytes | None:
        """One stored part, or None."""
        with self._guard():
            return stored_parts.part(self._connection, digest)

    def missing_parts(self, parts: PartList) -> list[int]:
        """Numbers of the parts that are not stored yet."""
        with self._guard():
            return stored_parts.missing(self._connection, parts)

    def joined(self, parts: PartList) -> memoryview:
        """The whole array of these parts, mapped; IntegrityError if one is missing or wrong."""
        folder = None if str(self.path) == ":memory:" else Path(self.path).parent
        return stored_parts.joined(self.part, parts, folder)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._connection.close()

    def _guard(self) -> _Guard:
        return _Guard(self.path)


class _Guard:
    """Turns a database error into an error that names the file and stops the process."""

    def __init__(self, path: Path | str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, broken: BaseException | None, trace: object) -> None:
        if isinstance(broken, sqlite3.OperationalError):
            raise OperatorError(
                f"writing or reading {self._path} failed ({broken}); free disk space or repair the "
                "disk, then start again: nothing was sent after the last commit"
            ) from broken
        if isinstance(broken, sqlite3.DatabaseError):
            raise IntegrityError(f"{self._path} is damaged: {broken}") from broken
