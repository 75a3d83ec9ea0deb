"""A small immutable table: named columns of equal length.

It owns the shape rules (no name twice, no empty table) and the kinds a column may have; it knows no
file format and no meaning of a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import DataError

Column = NDArray[Any]

# Variable-width text: 16 bytes a cell for the short ids and categories that are usual.
TEXT = np.dtypes.StringDType()


class Table:
    """Named columns of numbers, text or, where a source mixes them, objects.

    A chunk of a larger source knows by `first_row` which row of the whole it begins with, so that
    errors can name rows; rows count from 1, headers apart.
    """

    def __init__(
        self, names: Sequence[str], columns: Sequence[Column], *, first_row: int = 1
    ) -> None:
        check_names(names)
        if len(names) != len(columns) or len({len(column) for column in columns}) > 1:
            raise DataError("the columns of a table differ in length")
        self.names = tuple(names)
        self.first_row = first_row
        self._columns = dict(zip(names, map(_frozen, columns), strict=True))

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Table:
        """A table from names and sequences of Python values or arrays."""
        return cls(tuple(columns), [as_column(values) for values in columns.values()])

    @classmethod
    def from_pandas(cls, frame: Any) -> Table:
        """A table from a pandas DataFrame; its index is not used."""
        missing = frame.isna()
        columns = [
            as_column(_objects(frame.iloc[:, i], missing.iloc[:, i])) for i in range(frame.shape[1])
        ]
        return cls([str(name) for name in frame.columns], columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self._columns.values()))) if self.names else 0

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            raise DataError(f"there is no column {name!r}")
        return self._columns[name]

    def select(self, names: Sequence[str]) -> Table:
        """Only these columns, in this order."""
        return Table(names, [self[name] for name in names], first_row=self.first_row)

    def take(self, rows: NDArray[Any]) -> Table:
        """Only these rows, by number from 0 or by mask."""
        return Table(self.names, [self[name][rows] for name in self.names])

    def chunks(self) -> Iterator[Table]:
        """The table as the single chunk of itself."""
        if self.rows == 0:
            raise DataError("the table has no row")
        yield self

    def __repr__(self) -> str:
        return f"<Table of {self.rows} rows and {len(self.names)} columns>"


def concatenate(tables: Sequence[Table]) -> Table:
    """Chunks of one source put together."""
    names = tables[0].names
    return Table(names, [np.concatenate([part[name] for part in tables]) for name in names])


def check_names(names: Sequence[str]) -> None:
    """Refuse a column without a name or named twice."""
    seen: set[str] = set()
    for position, name in enumerate(names, start=1):
        if not name:
            raise DataError(f"column number {position} has no name")
        if name in seen:
            raise DataError(f"column {name!r} is named twice")
        seen.add(name)


def as_column(values: Any) -> Column:
    """The tightest kind that holds all values; None is an empty cell.

    Only text becomes text, only numbers become numbers; anything mixed stays as objects and is
    refused by row number when it is used.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufbT":
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind == "U":
        return values.astype(TEXT)
    cells = [_plain(cell) for cell in values]
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {str}:
        return np.array(["" if cell is None else cell for cell in cells], dtype=TEXT)
    if kinds <= {int, float} and None in cells:
        return np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    if kinds in ({int}, {float}, {bool}, {int, float}) or not cells:
        return np.array(cells)
    mixed = np.empty(len(cells), dtype=object)
    mixed[:] = cells
    return mixed


def _objects(series: Any, missing: Any) -> Any:
    values = series.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    # Not tolist(), which turns a date into a number.
    cells = zip(list(series), missing.to_numpy(), strict=True)
    return [None if empty else cell for cell, empty in cells]


def _plain(cell: Any) -> Any:
    known = isinstance(cell, np.bool_ | np.integer | np.floating | np.str_)
    return cell.item() if known else cell


def _frozen(column: Column) -> Column:
    view = column.view()
    if view.ndim != 1:
        raise DataError("a column has one dimension")
    view.flags.writeable = False
    return view
