"""The parts of large arrays, stored beside the records that list their digests.

It owns their table in the journal and the file that the whole array is mapped from; it knows no
peer and no envelope. A part is stored under its digest, so a copy changes nothing. The table is
made with the first part: a journal without large arrays has none.
"""

from __future__ import annotations

import mmap
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.wire.parts import Buffer, PartList, part_digest

ReadPart = Callable[[bytes], bytes | None]
TABLE = "CREATE TABLE IF NOT EXISTS parts (digest BLOB PRIMARY KEY, part BLOB NOT NULL) STRICT"


def has_table(connection: sqlite3.Connection) -> bool:
    """Whether this journal has ever stored a part."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'parts'").fetchone()
    return found is not None


def keep(connection: sqlite3.Connection, parts: Iterable[tuple[bytes, Buffer]]) -> None:
    """Store parts in one durable transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(TABLE)
    connection.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?)", parts)
    connection.execute("COMMIT")


def part(connection: sqlite3.Connection, digest: bytes) -> bytes | None:
    """One part as stored, or None."""
    if not has_table(connection):
        return None
    found = connection.execute("SELECT part FROM parts WHERE digest = ?", (digest,)).fetchone()
    return None if found is None else bytes(found[0])


def missing(connection: sqlite3.Connection, parts: PartList) -> list[int]:
    """Numbers of the parts that are not stored yet."""
    if not has_table(connection):
        return list(range(len(parts)))
    query = "SELECT 1 FROM parts WHERE digest = ?"
    return [
        number
        for number, digest in enumerate(parts.digests)
        if connection.execute(query, (digest,)).fetchone() is None
    ]


def joined(read: ReadPart, parts: PartList, folder: Path | None = None) -> memoryview:
    """The whole array, mapped from a file without a name; every part is checked again.

    IntegrityError if a stored part is damaged; PeerError if the list states sizes that differ
    from those of its parts, which only the author of the list can cause.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for number, digest in enumerate(parts.digests):
                file.write(_checked(parts, number, read(digest)))
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), parts.sizes.bytes, access=mmap.ACCESS_READ))
    except OSError as full:
        raise OperatorError(
            f"no room for an array of {parts.sizes.bytes / 1e9:.1f} GB: {full.strerror}; free disk "
            "space, then start again"
        ) from None


def _checked(parts: PartList, number: int, stored: bytes | None) -> bytes:
    if stored is None:
        raise IntegrityError(f"part {number} of {len(parts)} is missing")
    if part_digest(stored) != parts.digests[number]:
        raise IntegrityError(f"part {number} of {len(parts)} does not match its digest")
    parts.check_length(number, stored)
    return stored


class SpooledParts:
    """All parts of a journal, copied to a nameless file, so that the journal can be closed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._places: dict[bytes, tuple[int, int]] = {}
        if not has_table(connection):
            return
        for digest, stored in connection.execute("SELECT digest, part FROM parts"):
            self._places[digest] = self._file.tell(), len(stored)
            self._file.write(stored)

    def read(self, digest: bytes) -> bytes | None:
        """One part, or None."""
        if digest not in self._places:
            return None
        start, size = self._places[digest]
        self._file.seek(start)
        return self._file.read(size)

    def joined(self, parts: PartList) -> memoryview:
        """The whole array of these parts; IntegrityError if one is missing or wrong."""
        return joined(self.read, parts)
