"""CSV cut between rows, so that an engine can decode the pieces at the same time.

It owns where a row ends and how a piece becomes a table. It explains nothing: what is not plainly
well-formed is left to csv_stream.py, which reads the file row after row and names the fault.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from hdpvfl_mq.data.csv_stream import (
    BLOCK_BYTES,
    Dialect,
    as_utf8,
    block_bytes,
    conversion,
)
from hdpvfl_mq.data.layout import Layout
from hdpvfl_mq.data.places import DataFile
from hdpvfl_mq.data.tables import NotPlainError, Table

Text = NDArray[np.uint8]
PIECE_BYTES_MAX = 2**26
_BOM = b"\xef\xbb\xbf"
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'


@dataclass(frozen=True)
class CsvFile:
    """One file, how it is written and which columns are wanted."""

    file: DataFile
    dialect: Dialect
    layout: Layout


@dataclass(frozen=True)
class Place:
    """Where in a file the text of some rows is."""

    file: DataFile
    version: tuple[int, int | None]
    start: int
    size: int

    def text(self) -> Text:
        """Read it; UnseenError if this process sees another file, or none."""
        with self.file.seen(self.version) as source:
            return np.frombuffer(source.read_at(self.size, self.start), np.uint8)


@dataclass(frozen=True, repr=False)
class Cut:
    """The text of some rows, in the blocks that were read."""

    place: Place
    blocks: Sequence[memoryview]

    def text(self) -> Text:
        """The text in one block."""
        # Not from malloc: once so large a block was freed, it keeps the memory of later arrays.
        text = np.frombuffer(mmap.mmap(-1, max(1, self.place.size)), np.uint8, self.place.size)
        place = 0
        for block in self.blocks:
            text[place : place + len(block)] = block
            place += len(block)
        return text


@dataclass(frozen=True)
class CsvPart:
    """How some rows of one file become a table: all but their text."""

    layout: Layout
    dialect: Dialect
    has_breaks: bool  # line ends inside cells
    rows: int

    def table(self, text: Text, numeric: Collection[str]) -> Any:
        """The rows as an Arrow table; NotPlainError if Arrow does not find what was counted."""
        layout = self.layout
        block = block_bytes(len(layout.written))
        try:
            found = arrow_csv.read_csv(
                pa.BufferReader(pa.py_buffer(text)),
                read_options=arrow_csv.ReadOptions(
                    # Each thread keeps memory of its own, and a single block needs none.
                    use_threads=len(text) > block,
                    block_size=block,
                    column_names=list(layout.written.values()),
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.dialect.separator, newlines_in_values=self.has_breaks
                ),
                convert_options=conversion(
                    layout.inside(layout.wanted), layout.inside(numeric), self.dialect
                ),
            )
        except (pa.ArrowException, ValueError):
            raise NotPlainError from None
        if found.num_rows != self.rows:
            raise NotPlainError
        return layout.table(found)


@dataclass(frozen=True)
class CsvPiece:
    """How one chunk of a source is decoded: rows of one file, or of several that follow."""

    first_row: int
    numeric: frozenset[str]
    parts: tuple[CsvPart, ...]

    def tables(self, texts: Sequence[Text]) -> Iterator[Table]:
        """The chunk; NotPlainError if csv_stream.py must read it."""
        tables = [
            part.table(text, self.numeric) for part, text in zip(self.parts, texts, strict=True)
        ]
        whole = pa.concat_tables(tables)
        yield Table(whole.schema.names, whole.columns, first_row=self.first_row)


@dataclass(frozen=True)
class PlacedPiece:
    """The same, with places instead of texts: it holds no cell."""

    piece: CsvPiece
    places: tuple[Place, ...]

    def tables(self, texts: Sequence[Text]) -> Iterator[Table]:
        """The chunk; NotPlainError if csv_stream.py must read it."""
        try:
            texts = [place.text() for place in self.places]
        except (OSError, pa.ArrowException):
            raise NotPlainError from None
        return self.piece.tables(texts)


def pieces(
    files: Iterable[CsvFile], numeric: frozenset[str], size: int
) -> Iterator[tuple[CsvPiece, list[Cut]]]:
    """Chunks of `size` rows, the last may have fewer; NotPlainError where a file cannot be cut."""
    first_row, held = 1, 0
    parts, cuts = list[CsvPart](), list[Cut]()
    for each in files:
        with each.file.stream() as raw:
            cutter, version = RowCutter(raw, each.dialect), each.file.version()
            header, _ = cutter.take(1)
            if b"\r" in b"".join(header).strip(b"\r\n"):
                raise NotPlainError  # lines of old Macs, of which the first may be many rows
            start = cutter.start
            while (taken := cutter.take(size - held))[1]:
                blocks, rows = taken
                parts.append(CsvPart(each.layout, each.dialect, cutter.has_breaks, rows))
                place = Place(each.file, version, start, cutter.start - start)
                cuts.append(Cut(place, blocks))
                held, start = held + rows, cutter.start
                if held == size:
                    yield CsvPiece(first_row, numeric, tuple(parts)), cuts
                    first_row, held, parts, cuts = first_row + size, 0, [], []
    if held:
        yield CsvPiece(first_row, numeric, tuple(parts)), cuts


class RowCutter:
    """A CSV file from which whole rows are taken, as many as are asked for."""

    def __init__(self, raw: IO[bytes], dialect: Dialect) -> None:
        self._raw = as_utf8(raw, dialect.encoding)
        self._blocks: list[memoryview] = []
        self.start = 0  # of the first row that was not taken, in the file
        self._length = 0  # of the blocks, from the first row on that was not taken
        self._ends = np.empty(0, dtype=np.int64)  # of rows, counted from there
        self._line = -1  # where the last line ended, also an empty one
        self._tail = b"\n"  # the last byte that was looked at, and the one after it
        self._is_first, self._is_over, self._is_quoted = True, False, False
        self.has_breaks = False  # inside quotes, so far
        self._edges = np.zeros(256, dtype=np.bool_)
        self._edges[[_QUOTE, _NEWLINE, _RETURN, *dialect.separator.encode()]] = True

    def take(self, rows: int) -> tuple[list[memoryview], int]:
        """The text of the next rows and how many they are: fewer only where the file ends."""
        while len(self._ends) < rows and not self._is_over:
            self._read()
        count = min(rows, len(self._ends))
        end = int(self._ends[count - 1]) if count else 0
        found = self._cut(end)
        self._ends = self._ends[count:] - end
        self._line -= end
        return found, count

    def _cut(self, size: int) -> list[memoryview]:
        self._length -= size
        self.start += size
        found: list[memoryview] = []
        while size:
            block = self._blocks[0]
            found.append(block[:size])
            self._blocks[:1] = [block[size:]] if size < len(block) else []
            size -= len(found[-1])
        return found

    def _read(self) -> None:
        """Find the ends of rows in the next block."""
        block = self._raw.read(BLOCK_BYTES)
        self._is_over = not block
        if self._is_first:
            self.start = len(_BOM) if block.startswith(_BOM) else 0
            block, self._is_first = block[self.start :], False
        if b"\0" in block or self._length > PIECE_BYTES_MAX:
            raise NotPlainError
        # The last byte is looked at when the next one is known.
        window, start = self._tail + block, self._length - len(self._tail)
        stop = len(window) - (not self._is_over)
        self._blocks.append(memoryview(block))
        self._length += len(block)
        self._tail = window[stop - 1 :]
        bytes_ = np.frombuffer(window, np.uint8)
        lines = np.flatnonzero(bytes_[1:stop] == _NEWLINE) + 1
        if self._is_quoted or window.find(b'"', 1, stop) > 0:
            lines = self._outside(bytes_, lines, stop)
        self._add(bytes_, lines, start)
        if self._is_over:
            self._finish()

    def _outside(self, window: Text, lines: NDArray[np.int64], stop: int) -> NDArray[np.int64]:
        """Line ends that are not inside quotes; every quote must begin or end a cell."""
        quotes = np.flatnonzero(window[1:stop] == _QUOTE) + 1
        opening, closing = quotes[self._is_quoted :: 2], quotes[1 - self._is_quoted :: 2]
        after = closing[closing + 1 < len(window)] + 1
        if not (self._edges[window[opening - 1]].all() and self._edges[window[after]].all()):
            raise NotPlainError
        breaks = np.flatnonzero(window[1:stop] == _RETURN) + 1
        self.has_breaks = self.has_breaks or bool(self._inside(quotes, breaks).any())
        is_inside = self._inside(quotes, lines)
        self.has_breaks = self.has_breaks or bool(is_inside.any())
        self._is_quoted ^= bool(len(quotes) % 2)
        return lines[~is_inside]

    def _inside(self, quotes: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which places of a block have an odd number of quotes before them."""
        odd: NDArray[np.bool_] = (np.searchsorted(quotes, places) + self._is_quoted) % 2 == 1
        return odd

    def _add(self, window: Text, lines: NDArray[np.int64], start: int) -> None:
        """Count these lines as rows, except empty ones, which Arrow leaves out too."""
        if len(lines):
            length = np.diff(lines, prepend=self._line - start)
            is_empty = (length == 1) | ((length == 2) & (window[lines - 1] == _RETURN))
            self._ends = np.concatenate([self._ends, lines[~is_empty] + (start + 1)])
            self._line = int(lines[-1]) + start

    def _finish(self) -> None:
        """The last line need not end with a line end."""
        if self._is_quoted:
            raise NotPlainError
        if self._length - 1 > self._line:
            self._ends = np.append(self._ends, self._length)
