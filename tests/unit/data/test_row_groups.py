"""Parquet in pieces for workers: the same chunks as one row group after the other."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from hdpvfl_mq.data import row_groups
from hdpvfl_mq.data.places import DataFile
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.engine.port import UnseenError

WANTED = ("id", "b", "day")


def write(folder: Path, groups: list[list[int]]) -> Path:
    """A file for each list, with row groups of so many rows."""
    place = folder / "rows"
    done = 0
    for number, sizes in enumerate(groups):
        day = place / f"day={number}"
        day.mkdir(parents=True, exist_ok=True)
        rows = np.arange(done, done + sum(sizes))
        done += len(rows)
        table = pa.table({"id": rows, "b": rows / 7, "city": pa.array(rows).cast(pa.string())})
        with parquet.ParquetWriter(day / "x.parquet", table.schema) as writer:
            start = 0
            for size in sizes:
                writer.write_table(table.slice(start, size), row_group_size=max(1, size))
                start += size
    return place


def rows_of(table: Table) -> tuple[int, int, list[list[object]]]:
    return table.first_row, table.rows, [table.arrow(name).to_pylist() for name in WANTED]


def placed(place: Path, size: int) -> list[tuple[int, int, list[list[object]]]]:
    pieces = list(TableFile(place, chunk_cells=4 * size).places(WANTED, numeric=["b"]))
    return [rows_of(table) for piece in pieces if piece is not None for table in piece.tables(())]


def read(place: Path, size: int) -> list[tuple[int, int, list[list[object]]]]:
    return [rows_of(table) for table in TableFile(place, chunk_cells=4 * size).chunks(WANTED)]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    groups=st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=3),
    size=st.integers(1, 12),
    enough=st.integers(1, 60),
)
def test_pieces_have_the_chunks_of_one_process(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int]], size: int, enough: int
) -> None:
    place = write(tmp_path_factory.mktemp("x"), [*groups, [1]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "_PIECE_CELLS", enough)
        assert placed(place, size) == read(place, size)


def test_a_piece_ends_soon_after_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else workers would read the same row groups again and again."""
    monkeypatch.setattr(row_groups, "_PIECE_CELLS", 1)
    place = write(tmp_path, [[50, 50, 50, 50]])
    pieces = list(TableFile(place, chunk_cells=4 * 7).places(WANTED, numeric=["b"]))
    assert len(pieces) == 4
    spans = [[(s.group, s.skipped, s.rows) for s in p.parts[0].spans] for p in pieces]  # type: ignore[union-attr]  # of Parquet
    assert spans[1] == [(1, 6, 44), (2, 0, 5)]
    assert b"0.142857" not in pickle.dumps(pieces)


def test_a_large_row_group_is_left_to_the_partys_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_PIECE_CELLS", 1)
    monkeypatch.setattr(row_groups, "_PIECE_CELLS_MAX", 40)
    place = write(tmp_path, [[10, 10, 30, 10]])
    pieces = list(TableFile(place, chunk_cells=4 * 5).places(WANTED, numeric=["b"]))
    assert [piece is None for piece in pieces] == [False, False, True]


def forbidden(_: DataFile) -> None:
    raise PermissionError(13, "Permission denied")


def test_files_of_other_types_are_left_to_the_partys_process(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int64(), pa.int64(), pa.float64())):
        table = pa.table({"id": ["k"], "b": pa.array([1], kind), "day": [1]})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    assert list(TableFile(tmp_path).places(WANTED, numeric=["b"])) == [None]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_another_file_under_the_same_path_is_not_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    if suffix == "csv":
        path.write_text("id,b,day\n1,2,3\n")
    else:
        parquet.write_table(pa.table({"id": [1], "b": [2.0], "day": [3]}), path)
    (piece,) = TableFile(path).places(WANTED, numeric=["b"])
    assert piece is not None
    assert [table.rows for table in piece.tables(())] == [1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataFile, "random_access", forbidden)
        with pytest.raises(UnseenError):
            list(piece.tables(()))
    os.utime(path, ns=(1, 1))
    with pytest.raises(UnseenError):
        list(piece.tables(()))
    path.unlink()
    with pytest.raises(UnseenError):
        list(piece.tables(()))
