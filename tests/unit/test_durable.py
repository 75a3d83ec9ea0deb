"""A durable file: its log keeps its length, and zeros behind the last commit are not read."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from hdpvfl_mq import durable
from hdpvfl_mq.durable import LOG_BYTES, make_exclusive, make_private


def _opened(path: Path, page_bytes: int = 2**12) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    make_exclusive(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS kept (number INTEGER PRIMARY KEY, body BLOB)")
    return connection


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM kept ORDER BY number")]


def test_commits_do_not_make_the_log_longer(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    connection = _opened(path)
    assert _log(path).stat().st_size == LOG_BYTES
    for number in range(20):
        connection.execute("INSERT INTO kept VALUES (?, ?)", (number, bytes(3000)))
    assert _log(path).stat().st_size == LOG_BYTES
    connection.close()


@pytest.mark.parametrize("page_bytes", [2**12, 2**14])
def test_the_log_is_used_again_before_commits_make_it_longer(
    tmp_path: Path, page_bytes: int
) -> None:
    path, body = tmp_path / "a.db", bytes(30_000)
    connection = _opened(path, page_bytes)
    for number in range(3 * LOG_BYTES // len(body)):
        connection.execute("INSERT INTO kept VALUES (?, ?)", (number, body))
    commit_bytes = len(body) + 4 * page_bytes  # with the pages that point to it
    assert _log(path).stat().st_size < LOG_BYTES + commit_bytes
    connection.close()


def test_a_copy_of_the_files_has_every_commit_and_nothing_else(tmp_path: Path) -> None:
    """A copy of both files, taken while they are open, is what a killed process leaves."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    connection = _opened(path)
    for number in range(20):
        connection.execute("INSERT INTO kept VALUES (?, ?)", (number, b"body"))
        shutil.copy(path, copy)
        shutil.copy(_log(path), _log(copy))
        again = _opened(copy)  # lengthens a log that already has its length and content
        assert _numbers(again) == list(range(number + 1))
        again.execute("INSERT INTO kept VALUES (1000, NULL)")
        assert _numbers(again)[-1] == 1000
        again.close()
        copy.unlink()
    connection.close()


def test_a_log_that_outgrew_its_length_is_kept_whole(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    connection = _opened(path)
    for number in range(3):
        connection.execute("INSERT INTO kept VALUES (?, ?)", (number, bytes(LOG_BYTES)))
    assert _log(path).stat().st_size > LOG_BYTES
    shutil.copy(path, copy)
    shutil.copy(_log(path), _log(copy))
    assert _numbers(_opened(copy)) == [0, 1, 2]
    connection.close()


def test_a_second_connection_is_refused(tmp_path: Path) -> None:
    connection = _opened(tmp_path / "a.db")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        _opened(tmp_path / "a.db")
    connection.close()


def test_a_disk_without_space_for_the_log_is_left_to_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(type(tmp_path)):  # type: ignore[misc]  # the class of this system's paths
        def open(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "Path", Full)
    connection = _opened(tmp_path / "a.db")
    connection.execute("INSERT INTO kept VALUES (1, NULL)")
    assert _numbers(connection) == [1]
    connection.close()


def test_memory_has_no_log() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    make_exclusive(connection)
    connection.execute("CREATE TABLE kept (number INTEGER)")
    connection.close()


@pytest.mark.parametrize("exists", [False, True])
def test_only_the_owner_can_read_a_private_file_and_its_log(exists: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    if exists:  # from a backup
        path.touch()
        path.chmod(0o644)
    make_private(path)
    connection = _opened(path)
    assert [each.stat().st_mode & 0o777 for each in (path, _log(path))] == [0o600, 0o600]
    connection.close()
