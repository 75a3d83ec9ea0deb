"""A disk whose power may fail: an SQLite VFS in memory that remembers what was never synced.

At a power failure each write since the file's last sync is randomly dropped, kept, or torn at some
byte. The connection has the interface of the standard library's, so that ledger and journal use it
unchanged.
"""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import apsw

_NAMES = count()


class PowerFailure(apsw.IOError):
    """The machine is off."""


@dataclass
class DiskFile:
    """What is safe, and what was written since."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)  # offset -1: truncate to len

    def content(self) -> bytearray:
        now = bytearray(self.safe)
        for offset, data in self.pending:
            put(now, offset, data)
        return now

    def after_failure(self, dice: random.Random) -> DiskFile:
        left = bytearray(self.safe)
        for offset, data in self.pending:
            fate = dice.random()
            if fate < 0.4:
                continue
            torn = data[: dice.randrange(len(data) + 1)] if fate > 0.8 and offset >= 0 else data
            put(left, offset, torn)
        return DiskFile(left)


def put(content: bytearray, offset: int, data: bytes) -> None:
    if offset < 0:
        del content[int.from_bytes(data, "big") :]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class Disk(apsw.VFS):
    """Files by name; `fails_at` counts writes, syncs and truncations until something happens."""

    def __init__(self, files: dict[str, DiskFile] | None = None, fails_at: int = 0) -> None:
        self.name = f"disk-{next(_NAMES)}"
        self.files = files or {}
        self.fails_at = fails_at
        self.operations = 0
        self.full = False  # at `fails_at` the disk is full instead of the power off
        super().__init__(self.name, base="")

    def operate(self) -> None:
        self.operations += 1
        if self.fails_at and self.operations >= self.fails_at:
            if self.full:
                raise apsw.FullError("disk full")
            raise PowerFailure

    def after_failure(self, dice: random.Random) -> Disk:
        return Disk({name: file.after_failure(dice) for name, file in self.files.items()})

    def xOpen(self, name: Any, flags: list[int]) -> OpenFile:
        key = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        flags[1] = flags[0]
        return OpenFile(self, self.files.setdefault(key, DiskFile()))

    def xDelete(self, name: str, syncdir: bool) -> None:
        self.operate()
        self.files.pop(name, None)

    def xAccess(self, name: str, flags: int) -> bool:
        return name in self.files

    def xFullPathname(self, name: str) -> str:
        return name


class OpenFile:
    """One open file of a disk; locks are nobody else's business."""

    def __init__(self, disk: Disk, file: DiskFile) -> None:
        self.disk, self.file = disk, file
        self.now = file.content()

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self.now[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.operate()
        self.file.pending.append((offset, bytes(data)))
        put(self.now, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self.disk.operate()
        self.file.pending.append((-1, size.to_bytes(8, "big")))
        del self.now[size:]

    def xSync(self, flags: int) -> None:
        self.disk.operate()
        self.file.safe, self.file.pending = bytearray(self.now), []

    def xFileSize(self) -> int:
        return len(self.now)

    def xClose(self) -> None: ...

    def xLock(self, level: int) -> None: ...

    def xUnlock(self, level: int) -> None: ...

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4096

    def xDeviceCharacteristics(self) -> int:
        return 0


class Connection:
    """An apsw connection with the manners of sqlite3."""

    def __init__(self, disk: Disk, path: str, synchronous: str = "FULL") -> None:
        self._db = apsw.Connection(path, vfs=disk.name)
        self._synchronous = synchronous

    def execute(self, statement: str, values: Any = ()) -> Any:
        if "synchronous" in statement:
            statement = f"PRAGMA synchronous = {self._synchronous}"
        try:
            return self._db.cursor().execute(statement, values)
        except apsw.Error as broken:
            raise sqlite3.OperationalError(str(broken)) from broken

    def executemany(self, statement: str, rows: Any) -> None:
        for row in rows:
            self.execute(statement, row)

    def executescript(self, script: str) -> None:
        for statement in script.split(";"):
            if statement.strip():
                self.execute(statement)

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def close(self) -> None:
        self._db.close()
