"""CSV cut between rows: the same cells as row after row, wherever blocks and chunks end."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpvfl_mq.data import csv_pieces
from hdpvfl_mq.data.csv_stream import BLOCK_BYTES
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import NotPlainError, Table

COLUMNS = ("id", "a", "b")
HEADER = "id,a,b\n"
# How many threads a process starts to read a file.
THREADS = """
import os, sys
import pyarrow as pa
from hdpvfl_mq.data.readers import TableFile
pa.set_cpu_count(4)
before = len(os.listdir("/proc/self/task"))
for piece, texts in TableFile(sys.argv[1]).pieces(["id", "a", "b"], numeric=["b"]):
    list(piece.tables(texts))
print(len(os.listdir("/proc/self/task")) - before)
"""


def rows_of(table: Table) -> list[tuple[object, ...]]:
    numbers = [None if np.isnan(number) else number for number in table["b"].tolist()]
    return list(zip(table["id"].tolist(), table["a"].tolist(), numbers, strict=True))


def cut(path: Path, *, block: int, rows: int) -> list[tuple[object, ...]] | None:
    """The rows of all pieces; None if a file is not cut to its end."""
    source = TableFile(path, chunk_cells=rows * len(COLUMNS))
    found: list[tuple[object, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_pieces, "BLOCK_BYTES", block)
        for piece, texts in source.pieces(COLUMNS, numeric=["b"]):
            if piece is None:
                return None
            try:
                (table,) = piece.tables(texts)
            except NotPlainError:
                return None
            assert table.first_row == len(found) + 1
            found += rows_of(table)
    return found


def placed(path: Path, *, block: int, rows: int) -> list[tuple[object, ...]]:
    """The rows of all pieces as workers read them from the file."""
    source = TableFile(path, chunk_cells=rows * len(COLUMNS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_pieces, "BLOCK_BYTES", block)
        pieces = list(source.places(COLUMNS, numeric=["b"]))
    return [
        row for piece in pieces if piece for table in piece.tables(()) for row in rows_of(table)
    ]


def read(path: Path) -> list[tuple[object, ...]]:
    """The rows as csv_stream.py reads them."""
    tables = TableFile(path).chunks(COLUMNS, numeric=["b"])
    return [row for table in tables for row in rows_of(table)]


PLAIN = {
    "plain": HEADER + "k,x,1.5\nl,y,2\n" * 5,
    "without a last line end": HEADER + "k,x,1.5\nl,y,2",
    "line ends of Windows": HEADER.replace("\n", "\r\n") + "k,x,1\r\nl,y,2\r\n",
    "a mark at the beginning": "\ufeff" + HEADER + "k,x,1\nl,y,2\n",
    "a mark before a quote": '\ufeff"id",a,b\nk,x,1\nl,y,2\n',
    "empty lines": "\n\n" + HEADER + "\nk,x,1\n\n\r\nl,y,2\n\n",
    "quoted commas": HEADER + 'k,"x,y",1\n"l,","",2\n',
    "quoted line ends": HEADER + 'k,"x\ny\n",1\nl,"\r\n",2\n"\n",y,3\n',
    "doubled quotes": HEADER + 'k,"x""y",1\nl,"""",2\nm,"""a\n""",3\n',
    "a quoted last cell": HEADER + 'k,x,"1"\nl,y,"2"',
    "empty numbers": HEADER + "k,x,\nl,y,NA\n",
    "Greek": HEADER + "κ,ξ,1\nλ,υ,2\n",
}
NOT_PLAIN = {
    "inches": HEADER + 'k,12",1\nl,6" pipe,2\nm,9",3\n',
    "line ends of old Macs": HEADER.replace("\n", "\r") + "k,x,1\rl,y,2\r",
    "line ends of both": "id,a,b\rk,x,1\rl,y,2\nm,z,3\n",
    "digits of another script": HEADER + "k,x,٣\nl,y,2\n",
}


@pytest.mark.parametrize("block", [3, 4, 7, 1000])
@pytest.mark.parametrize("kind", PLAIN)
def test_rows_are_the_same_wherever_a_block_ends(tmp_path: Path, kind: str, block: int) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(PLAIN[kind].encode())
    for rows in (1, 2, 100):
        assert cut(path, block=block, rows=rows) == read(path)
        assert placed(path, block=block, rows=rows) == read(path)


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_the_reader_of_rows(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(NOT_PLAIN[kind].encode())
    assert cut(path, block=5, rows=2) is None
    assert len(read(path)) >= 2


def test_a_chunk_may_have_rows_of_several_files(tmp_path: Path) -> None:
    for number, names in enumerate(("id,a,b", "b,a,id", " id ,b,a")):
        folder = tmp_path / f"day={number}"
        folder.mkdir()
        lines = [",".join(["1"] * 3)] * 5
        (folder / "x.csv").write_text("\n".join([names, *lines]))
    source = TableFile(tmp_path, chunk_cells=7 * 4)
    wanted = ("id", "day", "b")
    pieces = source.pieces(wanted, numeric=["b"])
    tables = [table for piece, texts in pieces if piece for table in piece.tables(texts)]
    assert [table.rows for table in tables] == [7, 7, 1]
    days = [day for table in tables for day in table.arrow("day").to_pylist()]
    assert days == ["0"] * 5 + ["1"] * 5 + ["2"] * 5


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_text_of_one_block_is_read_without_threads(tmp_path: Path) -> None:
    rows = BLOCK_BYTES // len("1,x,0.5\n")
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    small.write_text(HEADER + "1,x,0.5\n" * (rows // 2))
    large.write_text(HEADER + "1,x,0.5\n" * (rows * 2))
    started = [
        int(subprocess.check_output([sys.executable, "-c", THREADS, str(path)]))
        for path in (small, large)
    ]
    assert started[0] <= 1 < started[1]  # Arrow reads bytes in one


def test_an_endless_piece_is_not_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_pieces, "PIECE_BYTES_MAX", 100)
    path = tmp_path / "x.csv"
    path.write_text(HEADER + "k,x,1\n" * 100)
    assert cut(path, block=10, rows=10) == read(path)
    assert cut(path, block=10, rows=50) is None


CELLS = st.text(st.sampled_from('a1",\n\r é'), max_size=4)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8),
    line_end=st.sampled_from(["\n", "\r\n"]),
    block=st.integers(3, 40),
    size=st.integers(1, 9),
)
def test_any_cells_that_a_writer_quotes_come_back(
    tmp_path: Path, rows: list[tuple[str, str]], line_end: str, block: int, size: int
) -> None:
    text = io.StringIO()
    has_return = any("\r" in cell for row in rows for cell in row)  # Python may not quote these
    quoting = csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL
    writer = csv.writer(text, lineterminator=line_end, quoting=quoting)
    writer.writerows([COLUMNS, *((one, other, "1") for one, other in rows)])
    path = tmp_path / "x.csv"
    path.write_bytes(text.getvalue().encode())
    expected = [(one, other, 1.0) for one, other in rows]
    assert cut(path, block=block, rows=size) == expected
