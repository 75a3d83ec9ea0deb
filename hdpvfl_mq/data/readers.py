"""A source of rows as chunks of a table: CSV, Parquet, Arrow or Feather files, read by Arrow.

It owns the split into chunks of a fixed number of rows, and turns every reader's own exception into
a DataError; it does not know what columns mean. A chunk holds a bounded number of cells, so a file
may be larger than memory. Its size depends on the number of columns only, so sums over chunks are
the same to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from hdpvfl_mq.data import csv_pieces, csv_stream, row_groups
from hdpvfl_mq.data.csv_pieces import CsvFile, CsvPiece, Cut, PlacedPiece
from hdpvfl_mq.data.csv_stream import PLAIN, Dialect
from hdpvfl_mq.data.layout import Layout
from hdpvfl_mq.data.places import DataFile, files_at, unreachable
from hdpvfl_mq.data.tables import (
    NotPlainError,
    Piece,
    Pieced,
    Table,
    check_names,
    concatenate,
    is_text,
)
from hdpvfl_mq.errors import DataError, HdpvflError
from schemas.data import MAX_COLUMNS, DataSettings

CHUNK_CELLS = 2**20
_FILE_MAGIC = b"ARROW1"
_STORE = re.compile(
    "AWS Error|HDFS"
)  # what the errors of a store say, and those of a format do not
# What reading may raise; `chunks` comes to the same fault and names its row.
_FAULTS = (HdpvflError, NotPlainError, OSError, EOFError, pa.ArrowException, ValueError)


@dataclass(frozen=True)
class TableFile:
    """A file, or a folder of files, that can be read chunk by chunk, as often as needed."""

    place: str | Path
    chunk_cells: int = CHUNK_CELLS
    dialect: Dialect = PLAIN

    @classmethod
    def of(cls, settings: DataSettings) -> TableFile:
        """The file that a party's settings name."""
        assert settings.file is not None
        dialect = Dialect(settings.separator, settings.decimal, settings.encoding)
        return cls(settings.file, dialect=dialect)

    @cached_property
    def _files(self) -> tuple[DataFile, ...]:
        return files_at(str(self.place))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns, in the order of the first file."""
        file = self._files[0]
        with _faults_of(file):
            inside = _names(file, self._dialect(file))
        names = (*inside, *(key for key, _ in file.partition))
        check_names(names)
        return names

    @property
    def _size(self) -> int:
        """How many rows a chunk has."""
        return max(1, self.chunk_cells // max(1, len(self.names)))

    def chunks(
        self,
        columns: Sequence[str] | None = None,
        *,
        numeric: Collection[str] = (),
        after: int = 0,
    ) -> Iterator[Table]:
        """The rows in order, with all columns or these; DataError if the source is broken.

        CSV columns are text, except that a `numeric` column is float64 if all its cells are plain
        numbers. Chunks of the first `after` rows are left out.
        """
        wanted = self.names if columns is None else tuple(columns)
        rows = 0
        for chunk in _rechunked(self._batches(wanted, numeric), self._size):
            if rows >= after:
                yield Table(wanted, chunk.columns, first_row=rows + 1)
            rows += chunk.num_rows
        if rows == 0:
            raise DataError(f"{Path(str(self.place)).name} has no row{self.hint}")
        pa.default_memory_pool().release_unused()

    def pieces(self, columns: Sequence[str], *, numeric: Collection[str]) -> Iterator[Pieced]:
        """The chunks of a CSV source, not yet decoded; None for one that only `chunks` can read.

        Nothing follows None. Other formats have no such pieces.
        """
        if self._files[0].format != "csv":
            return
        try:
            for piece, cuts in self._csv_pieces(columns, numeric):
                yield piece, [cut.text() for cut in cuts]
        except _FAULTS:
            yield None, []

    def places(self, columns: Sequence[str], *, numeric: Collection[str]) -> Iterator[Piece | None]:
        """The chunks as pieces without a cell, for workers that read CSV or Parquet themselves.

        Nothing follows None.
        """
        try:
            if self._files[0].format == "parquet":
                if not self._files[0].is_for_workers:
                    return
                files = ((file, self._layout(file, columns)) for file in self._files)
                yield from row_groups.pieces(files, self._size)
            elif self._is_plain_csv:
                for piece, cuts in self._csv_pieces(columns, numeric):
                    yield PlacedPiece(piece, tuple(cut.place for cut in cuts))
        except _FAULTS:
            yield None

    @property
    def _is_plain_csv(self) -> bool:
        """Whether all files are local, uncompressed CSV in UTF-8."""
        return csv_stream.is_utf8(self.dialect.encoding) and all(
            file.format == "csv" and file.is_plain for file in self._files
        )

    def _csv_pieces(
        self, columns: Sequence[str], numeric: Collection[str]
    ) -> Iterator[tuple[CsvPiece, list[Cut]]]:
        files = (
            CsvFile(file, self._dialect(file), self._layout(file, columns)) for file in self._files
        )
        return csv_pieces.pieces(files, frozenset(numeric), self._size)

    def _batches(self, wanted: Sequence[str], numeric: Collection[str]) -> Iterator[Any]:
        for file in self._files:
            with _faults_of(file) as seen:
                for batch in self._read(file, self._layout(file, wanted), numeric):
                    yield batch
                    seen.rows += batch.num_rows

    def _read(self, file: DataFile, layout: Layout, numeric: Collection[str]) -> Iterator[Any]:
        """Batches of one file with the wanted columns, including those from folder names."""
        inside = layout.inside(layout.wanted)
        if file.format == "csv":
            kinds, dialect = layout.inside(numeric), self._dialect(file)
            batches = csv_stream.batches(file.stream, dialect, inside, numeric=kinds)
        else:
            read = row_groups.batches if file.format == "parquet" else _arrow
            batches = read(file, inside, self._size)
        return map(layout.table, batches)

    def _layout(self, file: DataFile, wanted: Sequence[str]) -> Layout:
        layout = Layout(tuple(wanted), _names(file, self._dialect(file)), dict(file.partition))
        missing = layout.missing()
        if missing is not None:
            raise DataError(f"there is no column {missing!r}{self.hint}")
        return layout

    def _dialect(self, file: DataFile) -> Dialect:
        return csv_stream.of_suffix(file.name, self.dialect)

    @cached_property
    def hint(self) -> str:
        """A likely cause of a missing column, or an empty text."""
        file = self._files[0]
        return csv_stream.hint(self.names, self._dialect(file)) if file.format == "csv" else ""


def load_table(place: str | Path) -> Table:
    """A whole file as one table."""
    return concatenate(list(TableFile(place).chunks()))


def _names(file: DataFile, dialect: Dialect) -> dict[str, str]:
    """The columns of a file without blanks around their names, and as they are written."""
    if file.format == "csv":
        written = csv_stream.read_names(file.stream, dialect)
    else:
        read = row_groups.parquet_file if file.format == "parquet" else _ipc_reader
        with file.random_access() as source:
            opened = read(source)
            written = getattr(opened, "schema_arrow", opened.schema).names
    if len(written) > MAX_COLUMNS:
        raise DataError(f"there are {len(written)} columns; at most {MAX_COLUMNS} are read")
    names = [name.strip() for name in written]
    check_names(names)
    return dict(zip(names, written, strict=True))


def _arrow(file: DataFile, columns: list[str], size: int) -> Iterator[Any]:
    with file.random_access() as source:
        reader = _ipc_reader(source)
        is_file = isinstance(reader, ipc.RecordBatchFileReader)
        batches = (
            map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
        )
        for batch in batches:
            yield batch.select(columns)


def _ipc_reader(source: Any) -> Any:
    magic = source.read(len(_FILE_MAGIC))
    source.seek(0)
    return ipc.open_file(source) if magic == _FILE_MAGIC else ipc.open_stream(source)


def _rechunked(tables: Iterator[Any], size: int) -> Iterator[Any]:
    """Tables of exactly `size` rows; the last one may have fewer."""
    pending: list[Any] = []
    held = 0
    for table in tables:
        pending.append(table)
        held += table.num_rows
        while held >= size:
            whole = _joined(pending)
            yield whole.slice(0, size)
            pending, held = [whole.slice(size)], held - size
    if held:
        yield _joined(pending)


def _joined(tables: list[Any]) -> Any:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # numbers in one, text in another: all become text
        texts = {f.name for table in tables for f in table.schema if is_text(f.type)}
    as_text = pa.large_string()
    try:
        casts = [
            table.cast(
                pa.schema([f.with_type(as_text) if f.name in texts else f for f in table.schema])
            )
            for table in tables
        ]
        return pa.concat_tables(casts, promote_options="permissive")
    except pa.ArrowException:  # its text may quote a cell
        raise DataError("the files hold one column as different types") from None


@dataclass
class _Seen:
    """How many rows of a file have been read."""

    rows: int = 0


@contextmanager
def _faults_of(file: DataFile) -> Iterator[_Seen]:
    """Name the file in every error; a reader's own text may quote a cell, so its kind is kept."""
    seen = _Seen()
    try:
        yield seen
    except HdpvflError as error:
        raise type(error)(f"{file.name}: {error}") from None
    except (OSError, EOFError, pa.ArrowException, ValueError) as error:
        raise _broken(file, seen.rows, error) from None


def _broken(file: DataFile, rows: int, error: Exception) -> HdpvflError:
    if isinstance(error, OSError) and _STORE.search(str(error)):
        return unreachable(file.path, error)
    return DataError(
        f"{file.name} cannot be read after row {rows}: it is damaged, cut short or not of the "
        f"format that its suffix says ({type(error).__name__})"
    )
