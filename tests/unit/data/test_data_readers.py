"""Every file format gives the same table; broken files are refused without quoting a cell."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from hdpvfl_mq.data.columns import numbers
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile, load_table
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError, SettingsError
from schemas.data import DataSettings, NamedColumn

FRAME = pd.DataFrame(
    {
        "id": ["a", "b", "007", "d"],
        "age": [31.5, 1e-300, -4.0, 1 / 3],
        "visits": [3, 0, 12, 5],
        "sex": ["f", "m", "f", "x y"],
    }
)
SECRET = "s3cret"


def write_arrow_stream(path: Path) -> None:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    with ipc.new_stream(path, table.schema) as sink:
        sink.write_table(table)


def write_npy(path: Path) -> None:
    kinds = [("id", "U8"), ("age", "f8"), ("visits", "i8"), ("sex", "U8")]
    np.save(path, np.array(list(FRAME.itertuples(index=False, name=None)), dtype=kinds))


def write_npz(path: Path) -> None:
    columns = {n: FRAME[n].to_numpy() for n in ("age", "visits")}
    texts = {n: FRAME[n].to_numpy().astype("U8") for n in ("id", "sex")}
    np.savez(path, **{n: {**columns, **texts}[n] for n in FRAME.columns})


WRITERS: dict[str, Callable[[Path], None]] = {
    "x.csv": lambda path: FRAME.to_csv(path, index=False),
    "X.CSV": lambda path: FRAME.to_csv(path, index=False, lineterminator="\r\n"),
    "bom.csv": lambda path: FRAME.to_csv(path, index=False, encoding="utf-8-sig"),
    "x.csv.gz": lambda path: FRAME.to_csv(path, index=False),
    "x.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "x.feather": lambda path: feather.write_feather(FRAME, path),
    "x.arrow": write_arrow_stream,
    "x.npy": write_npy,
    "x.npz": write_npz,
}
SETTINGS = DataSettings(rules=(NamedColumn(name="sex", categories=("f", "m", "x y")),))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("cells", [1, 8, 10_000])
def test_every_format_holds_the_same_rows(tmp_path: Path, name: str, cells: int) -> None:
    WRITERS[name](tmp_path / name)
    source = TableFile(tmp_path / name, chunk_cells=cells)
    chunks = list(source.chunks())
    assert len(chunks) == {1: 4, 8: 2, 10_000: 1}[cells]
    assert [chunk.first_row for chunk in chunks] == list(range(1, 5, 4 // len(chunks)))
    whole = load_table(tmp_path / name)
    assert whole.names == tuple(FRAME.columns)
    assert whole["id"].tolist() == FRAME["id"].tolist()
    assert np.array_equal(numbers(whole, "age"), FRAME["age"])
    # The same rows give the same fingerprint, whatever the format and the chunks.
    expected = prepare(Table.from_pandas(FRAME), SETTINGS, role="passive")
    found = prepare(source, SETTINGS, role="passive")
    assert np.array_equal(found.X, expected.X)
    assert found.fingerprint == expected.fingerprint


def test_plain_numpy_columns_are_numbered(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6).reshape(3, 2))
    table = load_table(tmp_path / "x.npy")
    assert table.names == ("c0", "c1")
    assert table["c1"].tolist() == [1, 3, 5]
    np.save(tmp_path / "flat.npy", np.arange(6))
    with pytest.raises(DataError, match="two dimensions"):
        load_table(tmp_path / "flat.npy")


def test_nulls_of_arrow_and_pandas_are_empty_cells(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": pd.array([1, None, 3], dtype="Int64"), "t": ["a", None, "c"]})
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    for table in (Table.from_pandas(frame), load_table(tmp_path / "x.parquet")):
        assert np.isnan(numbers(table, "n")).tolist() == [False, True, False]
        assert table["t"].tolist() == ["a", "", "c"]


def test_pandas_dates_are_not_taken_for_numbers() -> None:
    table = Table.from_pandas(pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-02"])}))
    with pytest.raises(DataError, match="column 'd', row 1, 2: the cell is not a number"):
        numbers(table, "d")


BROKEN = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"id,a\n", "no row"),
    "twice.csv": (b"id,a,a\n1,2,3\n", "'a' is named twice"),
    "nameless.csv": (b"id,,b\n1,2,3\n", "column number 2 has no name"),
    "ragged.csv": (b"id,a\n1,2\n3,s3cret,4\n", "row 2 has 3 cells"),
    "quote.csv": (b'id,a\n1,"s3cret\n', "quote.csv cannot be read"),
    "latin.csv": (b"id,a\n1,s3cret\n" + b"2,\xff\xfe\n", "latin.csv cannot be read"),
    "broken.csv.gz": (b"no gzip s3cret", "cannot be read after row 0"),
    "cut.csv.gz": (gzip.compress(b"id,a\n" + b"1,2\n" * 9000)[:-20], "cannot be read"),
    "broken.parquet": (b"PAR1 s3cret PAR1", "cannot be read"),
    "broken.feather": (b"ARROW1 s3cret", "cannot be read"),
    "broken.arrow": (b"s3cret s3cret", "cannot be read"),
    "broken.npy": (b"s3cret", "cannot be read"),
    "broken.npz": (b"PK s3cret", "cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, name: str) -> None:
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_table(tmp_path / name)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        load_table(tmp_path / "x.npy")


def test_arrow_kinds_without_meaning_are_refused(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "when": pa.array([0], pa.timestamp("s"))})
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"column 'when' holds timestamp\[.*neither numbers nor"):
        load_table(tmp_path / "x.parquet")


def test_a_column_named_twice_is_refused_in_every_format(tmp_path: Path) -> None:
    twice = pa.table([[1], [2], [3]], names=["id", "a", "a"])
    parquet.write_table(twice, tmp_path / "x.parquet")
    with ipc.new_file(tmp_path / "x.arrow", twice.schema) as sink:
        sink.write_table(twice)
    for name in ("x.parquet", "x.arrow"):
        with pytest.raises(DataError, match="'a' is named twice"):
            load_table(tmp_path / name)
    with pytest.raises(DataError, match="'a' is named twice"):
        Table.from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_wrong_use_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        load_table(tmp_path / "none.csv")
    with pytest.raises(SettingsError, match=r"one of \.csv, \.csv\.gz"):
        load_table(tmp_path / "x.xlsx")
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(SettingsError, match="pip install"):
        load_table(tmp_path / "x.parquet")


def test_a_table_cannot_be_changed() -> None:
    table = Table.of({"a": [1.0, 2.0]})
    with pytest.raises(ValueError, match="read-only"):
        table["a"][0] = 5.0
    with pytest.raises(DataError, match="no column 'b'"):
        table["b"]
    with pytest.raises(DataError, match="differ in length"):
        Table.of({"a": [1], "b": [1, 2]})
    with pytest.raises(DataError, match="one dimension"):
        Table(["a"], [np.zeros((2, 2))])
    assert repr(table) == "<Table of 2 rows and 1 columns>"


def test_an_archive_is_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    rows = 400_000
    np.savez_compressed(tmp_path / "x.npz", id=np.arange(rows), x=np.arange(rows) * 0.5)
    tracemalloc.start()
    total = sum(chunk["x"].sum() for chunk in TableFile(tmp_path / "x.npz", 2**12).chunks())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == rows * (rows - 1) / 4
    assert peak < rows


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": np.arange(3), "x": np.arange(4)}, "differ in length"),
        ({"id": np.arange(3), "x": np.zeros((3, 2))}, "one dimension"),
        ({"id": np.arange(3), "x": np.array(["s3cret", 1, None], dtype=object)}, "pickled"),
    ],
)
def test_archives_of_anything_else_are_refused(tmp_path: Path, columns, message: str) -> None:
    np.savez(tmp_path / "x.npz", **columns)
    with pytest.raises(DataError, match=message):
        load_table(tmp_path / "x.npz")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, id=np.arange(3000), x=np.random.default_rng(1).normal(size=3000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        load_table(path)
