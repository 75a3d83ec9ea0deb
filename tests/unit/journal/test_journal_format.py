"""A journal of another format is no damaged evidence: the operator is told what reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hdpvfl_mq.audit.checks_chain import CheckFailed, records_in_order
from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.audit.reader import read_transcript
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.journal.store import PAGE_BYTES, Journal


def written(folder: Path, found: str) -> Path:
    """A journal whose file states this format."""
    path = folder / "journal.db"
    Journal(path, run="one", party="shop").close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (found,))
    return path


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        ("1", "read it with scripts/verify_journal, or with the version that wrote it"),
        ("3", "read it with the version that wrote it"),
    ],
)
def test_another_format_is_refused_with_its_remedy(tmp_path, found, remedy):
    """Bug: an audit failed check 1, and a process was told to choose another run."""
    path = written(tmp_path, found)
    with pytest.raises(OperatorError, match=f"format {found}, .*: {remedy}$"):
        read_transcript(path, "shop")
    with pytest.raises(OperatorError, match=f"format {found}, .*: {remedy}$"):
        Journal(path, run="one", party="shop")


def test_a_format_that_is_no_number_is_a_finding(tmp_path):
    shown = read_transcript(written(tmp_path, "two"), "shop")
    with pytest.raises(CheckFailed, match="the journal says"):
        records_in_order(Evidence("one", {}, {"shop": shown}))


def test_a_journal_has_large_pages_and_one_with_small_pages_goes_on(tmp_path):
    """A block of entity resolution takes 250 of them; with small ones a commit took twice as long.

    A file made by an earlier version keeps its pages.
    """
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with closing(sqlite3.connect(old)) as small:
        small.execute("PRAGMA page_size = 4096")
        small.execute("PRAGMA journal_mode = WAL")
        small.execute("CREATE TABLE other (empty)")
    for path, page_bytes in ((old, 4096), (new, PAGE_BYTES)):
        for index in range(2):
            journal = Journal(path, run="run-1", party="shop")
            journal.commit([(index, bytes(2**20), bytes([index]) * 32)])
            journal.close()
        with closing(sqlite3.connect(path)) as kept:
            assert kept.execute("PRAGMA page_size").fetchone() == (page_bytes,)
            assert kept.execute("SELECT count(*) FROM records").fetchone() == (2,)
