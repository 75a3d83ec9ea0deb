"""A small immutable table: named Arrow columns of equal length.

It owns the shape rules (no name twice, no empty table) and the accepted Python objects; it knows no
file format and no meaning of a column. Text is always large_string here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from hdpvfl_mq.data import arrow_functions as functions
from hdpvfl_mq.errors import DataError

Column = NDArray[Any]

# Variable-width text: 16 bytes per cell for short ids and categories.
TEXT = np.dtypes.StringDType()
ROWS_SHOWN = 5
# What pyarrow raises for values it cannot hold in one column.
_MIXED = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


class Piece(Protocol):
    """Chunks of a source that are not yet decoded; they may be decoded in another process."""

    def tables(self, texts: Sequence[Any]) -> Iterator[Table]:
        """The chunks, from the bytes that go with the piece, or from the file that it names.

        NotPlainError if they must be read row after row, UnseenError if the file is not there.
        """


# A piece and the bytes that go with it; None if the rest of the source must be read as chunks.
Pieced = tuple[Piece | None, Sequence[Any]]


class NotPlainError(Exception):
    """A piece that cannot be cut or decoded."""


class Table:
    """Named columns of one kind each.

    `first_row` is the row of the whole source with which a chunk begins, so that errors can name
    rows; rows count from 1, without the header.
    """

    hint = ""  # a file has one if its separator may be wrong

    def __init__(self, names: Sequence[str], columns: Sequence[Any], *, first_row: int = 1) -> None:
        check_names(names)
        arrays = [_arrow(name, values) for name, values in zip(names, columns, strict=True)]
        if len({len(array) for array in arrays}) > 1:
            raise DataError("the columns of a table differ in length")
        self.names = tuple(names)
        self.first_row = first_row
        self._columns = dict(zip(names, arrays, strict=True))

    @classmethod
    def of(cls, source: Any) -> Table:
        """A table from names and sequences, an array, or any object with the Arrow interface.

        pandas, polars, duckdb and pyarrow have it; the index of a pandas DataFrame is not used.
        """
        if isinstance(source, Mapping):
            return cls(tuple(source), tuple(source.values()))
        if isinstance(source, np.ndarray):
            return cls(*_array_columns(source))
        if not hasattr(source, "__arrow_c_stream__"):
            raise DataError(
                f"{type(source).__name__} is not a table: give columns by name, or Arrow"
            )
        frame = source
        if hasattr(source, "reset_index"):
            frame = source.reset_index(drop=True)
            check_names([str(name) for name in frame.columns])
        try:
            table = pa.table(frame)
        except _MIXED as error:  # its text may quote a cell
            raise DataError(
                f"a column of the table has mixed kinds: {type(error).__name__}"
            ) from None
        return cls([str(name) for name in table.schema.names], table.columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self._columns.values()))) if self.names else 0

    def arrow(self, name: str) -> Any:
        """A column as an Arrow array."""
        if name not in self._columns:
            raise DataError(f"there is no column {name!r}")
        return self._columns[name]

    def __getitem__(self, name: str) -> Column:
        """A column in numpy: NaN for an empty number, "" for empty text."""
        array = self.arrow(name)
        if types.is_large_string(array.type):
            column = np.array(functions.filled(array, "").to_pylist(), dtype=TEXT)
        else:
            column = array.to_numpy(zero_copy_only=False).view()
        column.flags.writeable = False
        return column

    def select(self, names: Sequence[str]) -> Table:
        """Only these columns, in this order."""
        return Table(names, [self.arrow(name) for name in names], first_row=self.first_row)

    def take(self, rows: NDArray[Any]) -> Table:
        """Only these rows, by number from 0 or by mask."""
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        places = pa.array(numbers)
        return Table(self.names, [functions.take(each, places) for each in self._columns.values()])

    def chunks(
        self,
        columns: Sequence[str] | None = None,
        *,
        numeric: Collection[str] = (),
        after: int = 0,
    ) -> Iterator[Table]:
        """The table, or these columns of it, as a single chunk."""
        if self.rows == 0:
            raise DataError("the table has no row")
        yield self if columns is None else self.select(columns)

    def pieces(self, columns: Sequence[str], *, numeric: Collection[str]) -> Iterator[Pieced]:
        """None: nothing is to be decoded."""
        return iter(())

    def places(self, columns: Sequence[str], *, numeric: Collection[str]) -> Iterator[Piece | None]:
        """None: the table is in no file."""
        return iter(())

    def __repr__(self) -> str:
        return f"<Table of {self.rows} rows and {len(self.names)} columns>"


def concatenate(tables: Sequence[Table]) -> Table:
    """Join chunks of one source."""
    names = tables[0].names
    return Table(names, [pa.chunked_array([part.arrow(name) for part in tables]) for name in names])


def check_names(names: Sequence[str]) -> None:
    """Refuse a column without a name or named twice."""
    seen: set[str] = set()
    for position, name in enumerate(names, start=1):
        if not name:
            raise DataError(f"column number {position} has no name")
        if name in seen:
            raise DataError(f"column {name!r} is named twice")
        seen.add(name)


def refuse(first_row: int, name: str, bad: NDArray[np.bool_], reason: str) -> None:
    """Raise a DataError that names the column and the first marked rows and counts the others."""
    rows = np.flatnonzero(bad) + first_row
    if rows.size == 0:
        return
    shown = ", ".join(str(row) for row in rows[:ROWS_SHOWN])
    more = f" and {rows.size - ROWS_SHOWN} more" if rows.size > ROWS_SHOWN else ""
    raise DataError(f"column {name!r}, row {shown}{more}: {reason}")


def _arrow(name: str, values: Any) -> Any:
    """One Arrow array without dictionaries, extensions and short strings."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = _from_python(name, values)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if types.is_dictionary(values.type):
        values = functions.take(values.dictionary, values.indices)
    if types.is_string(values.type) or types.is_string_view(values.type):
        values = functions.cast(values, pa.large_string())
    return values


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, of any width or in a dictionary."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _from_python(name: str, values: Any) -> Any:
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DataError("a column has one dimension")
        if values.dtype.kind not in "OT":
            return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False))
        values = values.tolist()
    cells = list(values)
    try:
        return pa.array(cells, from_pandas=True)
    except _MIXED:
        first = next(cell for cell in cells if cell is not None)
        odd = np.array([not _go_together(first, cell) for cell in cells])
        refuse(1, name, odd, "the cell is of a different kind from the first")
        raise DataError(f"column {name!r} holds values that do not form a column") from None


def _go_together(first: object, cell: object) -> bool:
    try:
        pa.array([first, cell], from_pandas=True)
    except _MIXED:
        return False
    return True


def _array_columns(array: NDArray[Any]) -> tuple[list[str], list[NDArray[Any]]]:
    """Columns of an array with named fields, or of a plain matrix: c0, c1, ..."""
    if array.dtype.names:
        return list(array.dtype.names), [array[name] for name in array.dtype.names]
    if array.ndim != 2:
        raise DataError("an array must be a table: two dimensions or named fields")
    return [f"c{i}" for i in range(array.shape[1])], list(array.T)
