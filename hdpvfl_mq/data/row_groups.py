"""Parquet by row groups: one after the other, or as pieces that an engine's workers read.

It owns how a row group is read and which rows a piece has. It explains nothing: where the pieces of
a source end early, readers.py reads on and names the fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hdpvfl_mq.data.layout import Layout
from hdpvfl_mq.data.places import DataFile
from hdpvfl_mq.data.tables import NotPlainError, Table

_PAGE_BYTES = 2**16
# A row group up to this size is read at once, this many columns at a time.
_GROUP_CELLS, _GROUP_BYTES, _COLUMNS_OPEN = 2**22, 2**26, 32
# A worker reads row groups up to this size, and small ones together until they have so many cells.
_PIECE_CELLS_MAX, _PIECE_CELLS = 2**23, 2**21


def batches(file: DataFile, columns: list[str], size: int) -> Iterator[Any]:
    """All rows of a file; `size` is how many rows of a large row group are read at a time."""
    with file.random_access() as source, _opened(source) as opened:
        for number in range(opened.num_row_groups):
            group = opened.metadata.row_group(number)
            cells = group.num_rows * len(columns)
            if cells <= _GROUP_CELLS and group.total_byte_size <= _GROUP_BYTES:
                yield _row_group(opened, number, columns)
            else:
                yield from opened.iter_batches(
                    batch_size=size, row_groups=[number], columns=columns
                )


def parquet_file(source: Any, **options: Any) -> Any:
    """An open Parquet file."""
    from pyarrow import parquet  # noqa: PLC0415 - large, and only Parquet files need it

    return parquet.ParquetFile(source, **options)


def _opened(source: Any) -> Any:
    # Read with a buffer for each column, instead of all pages of a row group.
    return parquet_file(
        source, buffer_size=_PAGE_BYTES, pre_buffer=False, page_checksum_verification=True
    )


def _row_group(opened: Any, number: int, columns: Sequence[str]) -> Any:
    """A small row group, some columns at a time: each open column holds a page and a dictionary."""
    parts = [
        opened.read_row_group(number, columns=columns[start : start + _COLUMNS_OPEN])
        for start in range(0, len(columns), _COLUMNS_OPEN)
    ]
    return pa.table([column for part in parts for column in part.columns], names=columns)


@dataclass(frozen=True)
class Span:
    """Consecutive rows of one row group."""

    group: int
    skipped: int
    rows: int
    is_head: bool  # many rows of the group follow, and another piece has them

    def table(self, opened: Any, columns: list[str]) -> Any:
        """The rows."""
        if self.is_head:
            first = opened.iter_batches(self.rows, row_groups=[self.group], columns=columns)
            return pa.Table.from_batches([next(first)])
        return _row_group(opened, self.group, columns).slice(self.skipped, self.rows)


@dataclass(frozen=True)
class GroupsPart:
    """Rows of one file."""

    file: DataFile
    version: tuple[int, int | None]
    layout: Layout
    spans: tuple[Span, ...]

    def table(self) -> Any:
        """The rows as an Arrow table; UnseenError if this process sees another file, or none."""
        columns = self.layout.inside(self.layout.wanted)
        with self.file.seen(self.version) as source, _opened(source) as opened:
            return pa.concat_tables(
                [self.layout.table(span.table(opened, columns)) for span in self.spans]
            )


@dataclass(frozen=True)
class GroupsPiece:
    """Whole chunks of a source, from row groups of one file or of several that follow."""

    first_row: int
    size: int  # rows of a chunk
    parts: tuple[GroupsPart, ...]

    def tables(self, texts: Sequence[Any]) -> Iterator[Table]:
        """The chunks; NotPlainError if they must be read row after row."""
        try:
            whole = pa.concat_tables([part.table() for part in self.parts])
        except (OSError, EOFError, pa.ArrowException, ValueError):
            raise NotPlainError from None
        for start in range(0, whole.num_rows, self.size):
            chunk = whole.slice(start, self.size)
            yield Table(chunk.schema.names, chunk.columns, first_row=self.first_row + start)


def pieces(files: Iterable[tuple[DataFile, Layout]], size: int) -> Iterator[GroupsPiece]:
    """Pieces that begin and end where chunks of `size` rows do, the last one where the source ends.

    A piece ends soon after a row group does: a worker cannot begin in the middle of one without
    reading what is before. NotPlainError at a row group that is too large for a worker, or at a
    file with other types, whose columns are promoted.
    """
    cutter, types = _Cutter(size), list[Any]()
    for file, layout in files:
        version, columns = file.version(), layout.inside(layout.wanted)
        with file.random_access() as source, parquet_file(source) as opened:
            schema = opened.schema_arrow
            found = [schema.field(name).type for name in columns]
            groups = [opened.metadata.row_group(n) for n in range(opened.num_row_groups)]
            rows = [group.num_rows for group in groups]
        if found != (types := types or found):
            raise NotPlainError
        cutter.begin(GroupsPart(file, version, layout, ()))
        for number, count in enumerate(rows):
            if count * len(columns) > _PIECE_CELLS_MAX:
                raise NotPlainError
            enough = max(size, _PIECE_CELLS // max(1, len(columns)))
            yield from cutter.add(number, count, enough=enough)
    yield from cutter.rest()


class _Cutter:
    """Gathers row groups until they are a piece."""

    def __init__(self, size: int) -> None:
        self._size, self._first_row = size, 1
        self._parts: list[GroupsPart] = []
        self._file: GroupsPart | None = None
        self._spans: list[Span] = []
        self._held = 0
        self._lacks = 0  # rows until the last chunk of this piece is whole

    def begin(self, file: GroupsPart) -> None:
        """The row groups that follow are of this file."""
        self._close_file()
        self._file = file

    def add(self, group: int, rows: int, *, enough: int) -> Iterator[GroupsPiece]:
        """Add a row group; yields the piece before it if that one only lacked some rows."""
        skipped = min(rows, self._lacks)
        if skipped:
            self._spans.append(Span(group, 0, skipped, is_head=skipped < rows))
            self._held, self._lacks = self._held + skipped, self._lacks - skipped
            if not self._lacks:
                yield from self.rest()
        if skipped < rows:
            self._spans.append(Span(group, skipped, rows - skipped, is_head=False))
            self._held += rows - skipped
            if self._held >= enough:
                self._lacks = -self._held % self._size
                if not self._lacks:
                    yield from self.rest()

    def rest(self) -> Iterator[GroupsPiece]:
        """What is gathered, if anything, as a piece."""
        self._close_file()
        if self._held:
            yield GroupsPiece(self._first_row, self._size, tuple(self._parts))
        self._first_row += self._held
        self._held, self._lacks, self._parts = 0, 0, []

    def _close_file(self) -> None:
        if self._file is not None and self._spans:
            file = self._file
            part = GroupsPart(file.file, file.version, file.layout, tuple(self._spans))
            self._parts.append(part)
        self._spans = []
