"""A journal keeps few of its pages in memory: what it has written, it does not read again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hdpvfl_mq.journal.store import CACHE_KIB, open_database


def test_a_journal_keeps_half_a_mebibyte_of_pages(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "journal.db")) as connection:
        assert connection.execute("PRAGMA cache_size").fetchone() == (-CACHE_KIB,)
