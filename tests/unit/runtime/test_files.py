"""Files that are there whole or not at all, for their owner only."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from hdpvfl_mq.runtime.files import aside_of, create_private, write_private, writing_private


def test_a_file_is_replaced_for_its_owner_only(tmp_path):
    path = tmp_path / "new" / "status.json"
    write_private(path, "{}")
    write_private(path, b"[]", durable=True)
    assert path.read_text() == "[]"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_who_is_stopped_while_writing_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    write_private(path, "old")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_private(path, "new", durable=True)
    assert path.read_text() == "old"
    assert set(tmp_path.iterdir()) == {path, aside_of(path)}
    with pytest.raises(KeyboardInterrupt):
        create_private(tmp_path / "secret", "new")
    assert set(tmp_path.iterdir()) == {path, aside_of(path)}


def test_a_file_that_is_not_finished_replaces_nothing(tmp_path):
    path = tmp_path / "scores.csv"
    write_private(path, "old")
    with suppress(ValueError), writing_private(path) as file:
        file.write(b"half")
        raise ValueError
    assert path.read_text() == "old"
    with writing_private(path) as file:
        file.write(b"one")
        file.write(b"two")
    assert path.read_text() == "onetwo"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_is_on_disk_too(tmp_path, monkeypatch):
    """Bug: a ledger could outlive its secret, whose name a power loss took."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.fstat(opened).st_ino))
    create_private(tmp_path / "secret", "one")
    write_private(tmp_path / "kept", "two", durable=True)
    inodes = [(tmp_path / name).stat().st_ino for name in ("secret", ".", "kept", ".")]
    assert synced == inodes


def test_what_exists_is_not_created_again(tmp_path):
    create_private(tmp_path / "secret", "one")
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "secret", "two")
    assert (tmp_path / "secret").read_text() == "one"
    assert list(tmp_path.iterdir()) == [tmp_path / "secret"]
