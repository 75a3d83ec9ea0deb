"""Files as chunks of a table: CSV (also gzip), Parquet, Arrow or Feather, numpy.

It owns the formats and turns every reader's own exception into a DataError; it does not know what
columns mean. A chunk holds a bounded number of cells, so that a file may be larger than memory.
"""

from __future__ import annotations

import csv
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from hdpvfl_mq.data.tables import TEXT, Column, Table, as_column, check_names, concatenate
from hdpvfl_mq.errors import DataError, SettingsError

CHUNK_CELLS = 2**20


@dataclass(frozen=True)
class TableFile:
    """A file that can be read chunk by chunk, as often as needed."""

    path: Path
    chunk_cells: int = CHUNK_CELLS

    def chunks(self) -> Iterator[Table]:
        """The rows in order; a DataError where the file is empty or broken."""
        read = _reader(self.path)
        rows = 0
        try:
            for chunk in read(self.path, self.chunk_cells):
                if chunk.rows:
                    yield Table(
                        chunk.names, [chunk[name] for name in chunk.names], first_row=rows + 1
                    )
                rows += chunk.rows
        except FileNotFoundError as error:
            raise SettingsError(f"there is no file {self.path}") from error
        except (OSError, EOFError, csv.Error, ValueError, zipfile.BadZipFile, zlib.error) as error:
            # The reader's text may quote a cell, so only its kind is passed on.
            raise DataError(
                f"{self.path.name} cannot be read after row {rows}: {type(error).__name__}"
            ) from None
        if rows == 0:
            raise DataError(f"{self.path.name} has no row")


def load_table(path: Path) -> Table:
    """A whole file as one table."""
    return concatenate(list(TableFile(path).chunks()))


def _reader(path: Path) -> Callable[[Path, int], Iterator[Table]]:
    name = path.name.lower()
    for suffix, read in _READERS.items():
        if name.endswith(suffix):
            return read
    known = ", ".join(_READERS)
    raise SettingsError(f"{path.name}: the format is told by the suffix, one of {known}")


def _rows_for(columns: int, cells: int) -> int:
    return max(1, cells // max(1, columns))


def _read_csv(path: Path, cells: int) -> Iterator[Table]:
    with path.open(encoding="utf-8-sig", newline="") as text:
        yield from _csv_chunks(text, cells)


def _read_gzip(path: Path, cells: int) -> Iterator[Table]:
    with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as text:
        yield from _csv_chunks(text, cells)


def _csv_chunks(text: IO[str], cells: int) -> Iterator[Table]:
    lines = csv.reader(text, strict=True)
    names = next(lines, None)
    if not names:
        raise DataError("the file is empty")
    names = [name.strip() for name in names]
    check_names(names)
    size, row, batch = _rows_for(len(names), cells), 0, []
    for line in lines:
        if not line:
            continue
        row += 1
        if len(line) != len(names):
            raise DataError(f"row {row} has {len(line)} cells, the header has {len(names)}")
        batch.append(line)
        if len(batch) == size:
            yield _text_table(names, batch)
            batch = []
    if batch:
        yield _text_table(names, batch)


def _text_table(names: list[str], lines: list[list[str]]) -> Table:
    return Table(names, [np.array(cells, dtype=TEXT) for cells in zip(*lines, strict=True)])


def _read_parquet(path: Path, cells: int) -> Iterator[Table]:
    parquet = _arrow_module("parquet")
    with parquet.ParquetFile(path) as file:
        names = [str(name) for name in file.schema_arrow.names]
        check_names(names)
        for batch in file.iter_batches(batch_size=_rows_for(len(names), cells)):
            yield _arrow_table(names, batch)


def _read_arrow(path: Path, cells: int) -> Iterator[Table]:
    ipc = _arrow_module("ipc")
    with path.open("rb") as source:
        magic = source.read(6)
        source.seek(0)
        if magic == b"ARROW1":
            file = ipc.open_file(source)
            batches = map(file.get_batch, range(file.num_record_batches))
        else:
            file = ipc.open_stream(source)
            batches = iter(file)
        names = [str(name) for name in file.schema.names]
        check_names(names)
        size = _rows_for(len(names), cells)
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                yield _arrow_table(names, batch.slice(start, size))


def _arrow_table(names: list[str], batch: Any) -> Table:
    return Table(names, [_arrow_column(n, c) for n, c in zip(names, batch.columns, strict=True)])


def _arrow_column(name: str, column: Any) -> Column:
    types = _arrow_module("types")
    kind = column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return as_column(["" if cell is None else cell for cell in column.to_pylist()])
    raise DataError(f"column {name!r} holds {kind}, which is neither numbers nor text")


def _arrow_module(name: str) -> Any:
    try:
        return import_module(f"pyarrow.{name}")
    except ImportError as error:
        raise SettingsError("this format needs pyarrow: pip install 'hdpvfl-mq[data]'") from error


def _read_npy(path: Path, cells: int) -> Iterator[Table]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.names:
        names, columns = list(array.dtype.names), [array[name] for name in array.dtype.names]
    elif array.ndim == 2:
        names = [f"c{i}" for i in range(array.shape[1])]
        columns = [array[:, i] for i in range(array.shape[1])]
    else:
        raise DataError(f"{path.name} must hold a table: two dimensions or named fields")
    yield from _array_chunks(names, columns, cells)


def _read_npz(path: Path, cells: int) -> Iterator[Table]:
    """Column by column a few rows at a time: an archive cannot be mapped."""
    with zipfile.ZipFile(path) as archive, ExitStack() as opened:
        names = [member.removesuffix(".npy") for member in archive.namelist()]
        streams = [opened.enter_context(archive.open(member)) for member in archive.namelist()]
        heads = [_npy_head(stream) for stream in streams]
        rows = heads[0][0] if heads else 0
        if any(length != rows for length, _ in heads):
            raise DataError("the columns of a table differ in length")
        size = _rows_for(len(names), cells)
        for start in range(0, rows, size):
            count = min(size, rows - start)
            yield Table(
                names,
                [
                    as_column(np.frombuffer(stream.read(count * kind.itemsize), dtype=kind))
                    for stream, (_, kind) in zip(streams, heads, strict=True)
                ],
            )


def _npy_head(stream: IO[bytes]) -> tuple[int, np.dtype[Any]]:
    """Length and kind of the one-dimensional array that a stream goes on with."""
    is_first = np.lib.format.read_magic(stream) == (1, 0)
    head = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, _, kind = head(stream)
    if len(shape) != 1:
        raise DataError("a column has one dimension")
    if kind.hasobject:
        raise DataError("a column holds pickled objects")
    return shape[0], kind


def _array_chunks(names: list[str], columns: list[Column], cells: int) -> Iterator[Table]:
    size = _rows_for(len(names), cells)
    for start in range(0, len(columns[0]) if columns else 0, size):
        yield Table(names, [as_column(column[start : start + size]) for column in columns])


_READERS: dict[str, Callable[[Path, int], Iterator[Table]]] = {
    ".csv": _read_csv,
    ".csv.gz": _read_gzip,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".npy": _read_npy,
    ".npz": _read_npz,
}
