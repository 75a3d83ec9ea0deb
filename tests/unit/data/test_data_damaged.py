"""Damaged files: each kind is refused with a text that helps and never quotes a cell."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import DataError, SettingsError
from schemas.data import DataSettings

SECRET = "s3cret"
GOOD = b"id,a,b\n" + b"".join(b"%d,%d,2.5\n" % (i, i) for i in range(3000))
TABLE = pa.table({"id": ["k", "l", "m"], "a": [1.0, 2.0, 3.0]})


def text(rows: str, header: str = "id,a") -> bytes:
    return f"{header}\n{rows}".encode()


def of(write: Callable[[Path], object], change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A file that a library wrote, damaged afterwards."""

    def make(path: Path) -> None:
        write(path)
        path.write_bytes(change(path.read_bytes()))

    return make


def as_parquet(path: Path) -> None:
    parquet.write_table(TABLE, path)


def as_arrow(path: Path) -> None:
    feather.write_feather(TABLE, path, compression="uncompressed")


def as_stream(path: Path) -> None:
    with ipc.new_stream(path, TABLE.schema) as sink:
        sink.write_table(TABLE)


def as_zstd(path: Path) -> None:
    with pa.CompressedOutputStream(path, "zstd") as sink:
        sink.write(GOOD)


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return (
        content[:middle]
        + bytes(255 - byte for byte in content[middle : middle + 8])
        + content[middle + 8 :]
    )


def two_headers(path: Path) -> None:
    path.mkdir()
    (path / "a.csv").write_bytes(text("1,2\n2,3\n"))
    (path / "b.csv").write_bytes(text("3,4\n", header="id,other"))


def two_formats(path: Path) -> None:
    path.mkdir()
    (path / "a.csv").write_bytes(text("1,2\n2,3\n"))
    as_parquet(path / "b.parquet")


def million_columns(path: Path) -> None:
    path.write_text("id," + ",".join(map(str, range(10**6))) + "\n")


def no_file(path: Path) -> None:
    path.mkdir()
    (path / "_SUCCESS").touch()


LATE = 2500  # a row of the second chunk or later


def groups(change: Callable[[dict[str, list[object]]], object]) -> Callable[[Path], None]:
    """Parquet of 30 row groups whose cells were damaged before they were written."""

    def make(path: Path) -> None:
        cells: dict[str, list[object]] = {
            "id": [f"k{n}" for n in range(3000)],
            "a": [n / 7 for n in range(3000)],
        }
        change(cells)
        table = pa.table(cells)
        parquet.write_table(table, path, row_group_size=100, write_page_checksum=True)

    return make


def late(name: str, cell: object) -> Callable[[Path], None]:
    return groups(lambda cells: cells[name].__setitem__(LATE - 1, cell))


def whole(name: str, cell: Callable[[int], object]) -> Callable[[Path], None]:
    return groups(lambda cells: cells.update({name: [cell(n) for n in range(3000)]}))


def no_row(path: Path) -> None:
    parquet.write_table(TABLE.slice(0, 0), path)


def twice(path: Path) -> None:
    parquet.write_table(pa.table([TABLE["id"], TABLE["a"], TABLE["a"]], ["id", "a", "a"]), path)


def two_tables(second: pa.Table) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        groups(lambda _: None)(path / "a.parquet")
        parquet.write_table(second, path / "b.parquet")

    return make


def broken_second(path: Path) -> None:
    two_tables(TABLE)(path)
    content = (path / "b.parquet").read_bytes()
    (path / "b.parquet").write_bytes(content[:-30])


Content = bytes | Callable[[Path], None]
DAMAGED: dict[str, tuple[str, Content, str]] = {
    "empty": ("x.csv", b"", "x.csv: the file is empty"),
    "blank lines only": ("x.csv", b"\n\n\n", "x.csv: the file is empty"),
    "header only": ("x.csv", b"id,a\n", "has no row"),
    "header without line end": ("x.csv", b"id,a", "has no row"),
    "column named twice": ("x.csv", text("1,2,3\n", "id,a,a"), "'a' is named twice"),
    "column without name": ("x.csv", text("1,2,3\n", "id,,b"), "column number 2 has no name"),
    "long row": ("x.csv", text("1,2\n\n3,s3cret,4\n"), "row 2 has 3 cells, the header has 2"),
    "short row": ("x.csv", text("1,2\n3\n4,5\n"), "row 2 has 1 cells, the header has 2"),
    "open quote": ("x.csv", text('1,2\n2,"s3cret\n3,4\n'), "row 2: a quote is not closed"),
    "text after a quote": ("x.csv", text('1,"s3"cret\n2,3\n'), "row 1: .*in the wrong place"),
    "quoted line ends": ("x.csv", text('1,"s3\ncret"\n2,"3\n4"\n'), "'a', row 1, 2: .*not a num"),
    "NUL byte": ("x.csv", text("1,s3\0cret\n"), "x.csv: the file has a NUL byte"),
    "UTF-16": ("x.csv", "id,a\n1,2\n".encode("utf-16"), "NUL byte.*UTF-16"),
    "Latin-1 cell": ("x.csv", b"id,a\nb,1\ns3cret\xff,2\n", "not UTF-8: set data.encoding"),
    "Latin-1 header": ("x.csv", b"id,\xff\n1,2\n", "not UTF-8: set data.encoding"),
    "semicolons": ("x.csv", text("1;2\n", "id;a"), "separator looks like ';'"),
    "tabs": ("x.csv", text("1\t2\n", "id\ta"), r"separator looks like '\\t'"),
    "decimal commas": ("x.csv", text('1,"1,5"\n2,"2,5"\n'), "row 1, 2: .*set data.decimal"),
    "text among numbers": ("x.csv", text("1,2\n2,s3cret\n3,4\n"), "column 'a', row 2: .*not a num"),
    "number of a code": ("x.csv", text("1,1_000\n2,3\n"), "column 'a', row 1: .*not a number"),
    "infinite cell": ("x.csv", text("1,2\n2,-inf\n"), "column 'a', row 2: the cell is not finite"),
    "empty cell": ("x.csv", text("1,2\n2,\n"), "column 'a', row 2: the cell is empty"),
    "empty id": ("x.csv", text("1,2\n,3\n"), "column 'id', row 2: the id is empty"),
    "million columns": ("x.csv", million_columns, "1000001 columns; at most 100000"),
    "endless row": ("x.csv", text("1," + "9" * 3_000_000 + "\n2,3\n"), "a row does not end"),
    "binary": ("x.csv", os.urandom(64) + b"\0" + os.urandom(64), "NUL byte|UTF-8|cannot be read"),
    "no gzip": ("x.csv.gz", b"no gzip s3cret", "x.csv.gz cannot be read after row 0"),
    "gzip cut short": ("x.csv.gz", gzip.compress(GOOD)[:-20], "cannot be read after row"),
    "gzip with a wrong sum": (
        "x.csv.gz",
        gzip.compress(GOOD)[:-8] + b"\1\2\3\4" + gzip.compress(GOOD)[-4:],
        "cannot be read after row",
    ),
    "zstd cut short": ("x.csv.zst", of(as_zstd, lambda c: c[:-9]), "cannot be read after row"),
    "Parquet without magic": ("x.parquet", b"PAR1 s3cret PAR1", "cannot be read"),
    "Parquet cut short": ("x.parquet", of(as_parquet, lambda c: c[:-30]), "cannot be read"),
    "Parquet named CSV": ("x.csv", as_parquet, "NUL byte|UTF-8"),
    "CSV named Parquet": ("x.parquet", text("1,2\n"), "after row 0: .*not of the format that its"),
    "empty Parquet": ("x.parquet", b"", "cannot be read"),
    "Parquet without a row": ("x.parquet", no_row, "x.parquet has no row"),
    "Parquet column named twice": ("x.parquet", twice, "'a' is named twice"),
    "Parquet, flipped page": ("x.parquet", of(groups(len), flipped), "cannot be read after row"),
    "Parquet, empty cell": ("x.parquet", late("a", None), "'a', row 2500: the cell is empty"),
    "Parquet, infinite cell": ("x.parquet", late("a", 1e999), "row 2500: the cell is not finite"),
    "Parquet, huge cell": ("x.parquet", late("a", 1e30), "row 2500: the cell is beyond 1e"),
    "Parquet, empty id": ("x.parquet", late("id", None), "'id', row 2500: the id is empty"),
    "Parquet, text": (
        "x.parquet",
        whole("a", lambda n: "s3cret" if n == LATE - 1 else str(n)),
        "'a', row 2500: the cell is not a number",
    ),
    "Parquet, lists": ("x.parquet", whole("a", lambda n: [n]), "'a' holds list.*neither numbers"),
    "Parquet, decimal ids": ("x.parquet", whole("id", lambda n: n / 2), "'id' holds decimal num"),
    "second file without a column": (
        "x",
        two_tables(pa.table({"id": ["k"]})),
        "b.parquet: there is no column 'a'",
    ),
    "second file of text": (
        "x",
        two_tables(pa.table({"id": ["k"], "a": ["s3cret"]})),
        "'a', row 3001: the cell is not a number",
    ),
    "second file of lists": (
        "x",
        two_tables(pa.table({"id": ["k"], "a": [[1.0]]})),
        "the files hold one column as different types",
    ),
    "second file cut short": ("x", broken_second, "b.parquet cannot be read after row 0"),
    "Arrow file cut short": ("x.arrow", of(as_arrow, lambda c: c[:-40]), "cannot be read"),
    "Arrow stream cut short": ("x.arrow", of(as_stream, lambda c: c[:-60]), "cannot be read"),
    "no Arrow": ("x.feather", b"s3cret s3cret", "x.feather cannot be read"),
    "folder of two headers": ("x", two_headers, "b.csv: there is no column 'a'"),
    "folder of two formats": ("x", two_formats, "mixes formats"),
    "folder without data": ("x", no_file, "has no data file"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, kind: str) -> None:
    name, content, message = DAMAGED[kind]
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    with pytest.raises(DataError, match=message) as caught:
        prepare(TableFile(path), DataSettings(), role="passive")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_encoding_that_is_none_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(GOOD)
    for name, kind in (("no-such", SettingsError), ("base64", SettingsError), ("ascii", None)):
        settings = DataSettings(file=str(tmp_path / "x.csv"), encoding=name)
        if kind is None:
            assert TableFile.of(settings).names == ("id", "a", "b")
            continue
        with pytest.raises(kind, match=r"data\.encoding"):
            prepare(TableFile.of(settings), settings, role="passive")


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("cp1252", b"id,a\nb,1\ns3cret\x81,2\n"),
        ("utf-16", "id,a\ns3cret,1\n".encode("utf-16")[:-1]),
    ],
)
def test_text_of_another_encoding_is_refused(tmp_path: Path, encoding: str, content: bytes) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    settings = DataSettings(file=str(tmp_path / "x.csv"), encoding=encoding)
    with pytest.raises(DataError, match=r"not in the encoding that data\.encoding names") as caught:
        prepare(TableFile.of(settings), settings, role="passive")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
