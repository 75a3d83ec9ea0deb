"""Every file format and library gives the same table; wrong use names the remedy."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, fs, ipc, parquet

from hdpvfl_mq.data import places
from hdpvfl_mq.data.columns import numbers
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile, load_table
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError, NetworkError, OperatorError, SettingsError
from schemas.data import ColumnRule, DataSettings, NamedColumn

FRAME = pd.DataFrame(
    {
        "id": ["a", "b", "007", "d"],
        "age": [31.5, 1e-300, -4.0, 1 / 3],
        "visits": [3, 0, 12, 5],
        "sex": ["f", "m", "f", "x y"],
    }
)


def write_arrow_stream(path: Path) -> None:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    with ipc.new_stream(path, table.schema) as sink:
        sink.write_table(table)


def write_zstd(path: Path) -> None:
    with pa.CompressedOutputStream(path, "zstd") as sink:
        sink.write(FRAME.to_csv(index=False).encode())


def write_folder(path: Path) -> None:
    """Two files a party's writer left, and its mark; rows in the order of names."""
    path.mkdir()
    FRAME.iloc[:1].to_parquet(path / "part-0.parquet", index=False)
    FRAME.iloc[1:].to_parquet(path / "part-1.parquet", index=False)
    (path / "_SUCCESS").touch()


def write_csv_folder(path: Path) -> None:
    path.mkdir()
    FRAME.iloc[:3].to_csv(path / "a.csv", index=False)
    FRAME.iloc[3:].to_csv(path / "b.csv.gz", index=False)


WRITERS: dict[str, Callable[[Path], None]] = {
    "x.csv": lambda path: FRAME.to_csv(path, index=False),
    "X.CSV": lambda path: FRAME.to_csv(path, index=False, lineterminator="\r\n"),
    "bom.csv": lambda path: FRAME.to_csv(path, index=False, encoding="utf-8-sig"),
    "x.csv.gz": lambda path: FRAME.to_csv(path, index=False),
    "x.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "x.feather": lambda path: feather.write_feather(FRAME, path),
    "x.arrow": write_arrow_stream,
    "x.csv.zst": write_zstd,
    "x.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "quoted.csv": lambda path: FRAME.to_csv(path, index=False, quoting=csv.QUOTE_ALL),
    "folder": write_folder,
    "csvs": write_csv_folder,
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
    expected = prepare(Table.of(FRAME), SETTINGS, role="passive")
    found = prepare(source, SETTINGS, role="passive")
    assert np.array_equal(found.X, expected.X)
    assert found.fingerprint == expected.fingerprint


@pytest.mark.parametrize("cells", [1, 8, 10_000])
def test_signs_that_only_python_reads_are_read_from_their_row_on(tmp_path, cells: int) -> None:
    rows = ["1.5", "", "NA", "+2", " 3 ", "\u0664", "-0.0", "5e-324"]
    (tmp_path / "x.csv").write_text("id,a\n" + "".join(f"{i},{c}\n" for i, c in enumerate(rows)))
    settings = DataSettings(default=ColumnRule(missing=7.0))
    found = prepare(TableFile(tmp_path / "x.csv", cells), settings, role="passive").X[:, 0]
    assert found.tobytes() == np.array([1.5, 7, 7, 2, 3, 4, -0.0, 5e-324]).tobytes()


def test_the_dialect_is_a_setting(tmp_path: Path) -> None:
    text = "id;größe\n1;1,5\n2;-0,25\n3;+4,0\n"
    (tmp_path / "x.csv").write_bytes(text.encode("latin-1"))
    settings = {"file": str(tmp_path / "x.csv"), "separator": ";", "decimal": ","}
    wrong = DataSettings(**settings)
    with pytest.raises(DataError, match=r"not UTF-8: set data\.encoding"):
        prepare(TableFile.of(wrong), wrong, role="passive")
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "x.csv").write_bytes(text.encode(encoding))
        right = DataSettings(**settings, encoding=encoding)
        data = prepare(TableFile.of(right), right, role="passive")
        assert data.X[:, 0].tolist() == [1.5, -0.25, 4.0]
        assert data.column_names == ("größe",)


def test_folders_named_by_a_value_are_a_column(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 4.0], "land": ["a b", "c", "c"]})
    parquet.write_to_dataset(table, tmp_path / "x", partition_cols=["land"])
    rule = NamedColumn(name="land", categories=("a b", "c"))
    data = prepare(TableFile(tmp_path / "x"), DataSettings(rules=(rule,)), role="passive")
    assert data.column_names == ("x", "land=a b", "land=c")
    assert data.X[:, 1].tolist() == [1, 0, 0]


class OnlyAStream:
    """A table of a library that nobody here knows."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.Table.from_pandas(FRAME).__arrow_c_stream__(requested_schema)


def of_polars() -> object:
    import polars as pl  # noqa: PLC0415 - it starts threads, which a fork would lose

    return pl.from_pandas(FRAME)


FIELDS = [("id", "U8"), ("age", "f8"), ("visits", "i8"), ("sex", "U8")]
# The same table as different libraries hold it.
HANDED_OVER: dict[str, Callable[[], object]] = {
    "pandas": lambda: FRAME.set_index(pd.Index([9, 8, 7, 6])),
    "categories of pandas": lambda: FRAME.astype({"sex": "category"}),
    "polars": of_polars,
    "arrow": lambda: pa.Table.from_pandas(FRAME),
    "batches of arrow": lambda: pa.Table.from_pandas(FRAME).to_reader(max_chunksize=1),
    "anything with a stream": OnlyAStream,
    "mapping": lambda: {name: FRAME[name].tolist() for name in FRAME},
    "numpy": lambda: np.array(list(FRAME.itertuples(index=False, name=None)), dtype=FIELDS),
}


@pytest.mark.parametrize("library", HANDED_OVER)
def test_tables_are_handed_over_in_python(tmp_path: Path, library: str) -> None:
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    found = prepare(Table.of(HANDED_OVER[library]()), SETTINGS, role="passive")
    expected = prepare(TableFile(tmp_path / "x.csv"), SETTINGS, role="passive")
    assert found.fingerprint == expected.fingerprint


def test_plain_numpy_columns_are_numbered() -> None:
    table = Table.of(np.arange(6).reshape(3, 2))
    assert table.names == ("c0", "c1")
    assert table["c1"].tolist() == [1, 3, 5]
    with pytest.raises(DataError, match="two dimensions"):
        Table.of(np.arange(6))
    with pytest.raises(DataError, match="list is not a table"):
        Table.of([1, 2])


def test_nulls_of_arrow_and_pandas_are_empty_cells(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": pd.array([1, None, 3], dtype="Int64"), "t": ["a", None, "c"]})
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    for table in (Table.of(frame), load_table(tmp_path / "x.parquet")):
        assert np.isnan(numbers(table, "n")).tolist() == [False, True, False]
        assert table["t"].tolist() == ["a", "", "c"]


def test_pandas_dates_are_not_taken_for_numbers() -> None:
    table = Table.of(pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-02"])}))
    with pytest.raises(DataError, match=r"column 'd' holds timestamp.*neither numbers nor text"):
        numbers(table, "d")


def test_arrow_kinds_without_meaning_are_refused(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "when": pa.array([0], pa.timestamp("s"))})
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"column 'when' holds timestamp\[.*neither numbers nor"):
        prepare(TableFile(tmp_path / "x.parquet"), DataSettings(), role="passive")


def test_a_wide_row_group_is_read_some_columns_at_a_time(tmp_path: Path, monkeypatch) -> None:
    dice, path = np.random.default_rng(7), tmp_path / "x.parquet"
    cells = {f"x{number}": dice.normal(size=2000) for number in range(300)}
    parquet.write_table(pa.table({"id": np.arange(2000), **cells}), path, row_group_size=1000)
    size = 1000 * 301 * 8

    def read() -> tuple[int, list[pa.Array]]:
        before, most, found = pa.total_allocated_bytes(), 0, []
        for chunk in TableFile(path, chunk_cells=2**17).chunks():
            most = max(most, pa.total_allocated_bytes() - before)
            found.append(chunk["x299"])
        return most, found

    most, found = read()
    assert np.array_equal(np.concatenate(found), cells["x299"])
    assert most < 3 * size  # with 301 columns open at a time it is 4.6 times
    monkeypatch.setattr("hdpvfl_mq.data.row_groups._GROUP_CELLS", 0)  # a group larger than memory
    _, other = read()
    assert np.array_equal(np.concatenate(other), cells["x299"])


def test_a_column_named_twice_is_refused_in_every_format(tmp_path: Path) -> None:
    twice = pa.table([[1], [2], [3]], names=["id", "a", "a"])
    parquet.write_table(twice, tmp_path / "x.parquet")
    with ipc.new_file(tmp_path / "x.arrow", twice.schema) as sink:
        sink.write_table(twice)
    for name in ("x.parquet", "x.arrow"):
        with pytest.raises(DataError, match="'a' is named twice"):
            load_table(tmp_path / name)
    with pytest.raises(DataError, match="'a' is named twice"):
        Table.of(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_wrong_use_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        load_table(tmp_path / "none.csv")
    for name, remedy in (("x.xlsx", r"one of \.csv, .*\.csv\.gz"), ("x.npz", "write Parquet")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(SettingsError, match=remedy):
            load_table(tmp_path / name)
    with pytest.raises(SettingsError, match="no password in an address"):
        load_table("s3://key:s3cret@bucket/x.parquet")
    with pytest.raises(SettingsError, match="ftp:// is not known"):
        load_table("ftp://host/x.parquet")


def test_hdfs_says_what_it_needs(monkeypatch) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.setenv(name, "/no/such/folder")
    with pytest.raises(OperatorError) as caught:
        load_table("hdfs://127.0.0.1:1/x.parquet")
    if isinstance(caught.value, NetworkError):
        pytest.skip("Hadoop is installed here, and no name node answers")
    assert "needs Java and Hadoop's client: set JAVA_HOME" in str(caught.value)


def test_an_hdfs_address_is_read_by_the_file_system_that_arrow_gives(tmp_path, monkeypatch) -> None:
    """No Hadoop is needed here: another file system of Arrow stands in for it."""
    asked: list[str] = []

    class Given:
        @staticmethod
        def from_uri(address: str) -> tuple[Any, str]:
            asked.append(address)
            return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "bank/people"

    (tmp_path / "bank").mkdir()
    write_folder(tmp_path / "bank" / "people")
    monkeypatch.setattr(fs, "FileSystem", Given)
    monkeypatch.setenv("CLASSPATH", "some.jar")
    monkeypatch.setenv("LIBHDFS_OPTS", "")
    table = load_table("hdfs://name-node:8020/bank/people")
    assert list(table["id"]) == list(FRAME["id"])
    assert [address.split("?")[0] for address in asked] == ["hdfs://name-node:8020/bank/people"]


def test_a_store_that_does_not_answer_is_told_soon(monkeypatch) -> None:
    """Google's client tries for 15 minutes unless it is told a limit."""
    monkeypatch.setitem(places._LIMITS, "gs", "retry_limit_seconds=1")
    began = time.monotonic()
    with pytest.raises(NetworkError, match="cannot be reached"):
        load_table("gs://bucket/x.parquet?scheme=http&endpoint_override=127.0.0.1:1")
    assert time.monotonic() - began < 120  # much less than 900, on any machine


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
