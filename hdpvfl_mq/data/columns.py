"""One raw column read as numbers, as categories or as ids, or refused by row number.

It owns what an empty cell looks like and which kinds are accepted where; it knows no settings.
Errors name the column and row numbers, never a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.tables import TEXT, Column, Table
from hdpvfl_mq.errors import DataError

Mask = NDArray[np.bool_]

# Squares and sums of cells this large are still finite doubles.
CELL_LIMIT = 1e18
_NO_NUMBER = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "None"})
_ROWS_SHOWN = 5


def refuse(table: Table, name: str, bad: Mask, reason: str) -> None:
    """Raise a DataError that names the column, the first marked rows, and counts the others."""
    rows = np.flatnonzero(bad) + table.first_row
    if rows.size == 0:
        return
    shown = ", ".join(str(row) for row in rows[:_ROWS_SHOWN])
    more = f" and {rows.size - _ROWS_SHOWN} more" if rows.size > _ROWS_SHOWN else ""
    raise DataError(f"column {name!r}, row {shown}{more}: {reason}")


def numbers(table: Table, name: str) -> NDArray[np.float64]:
    """A column as float64, NaN for an empty cell; infinite or unreadable cells are refused."""
    column = table[name]
    if column.dtype.kind in "iufb":
        values = column.astype(np.float64)
    else:
        values = _parsed(table, name, column)
    refuse(table, name, np.isinf(values), "the cell is not finite")
    refuse(table, name, np.abs(values) > CELL_LIMIT, f"the cell is beyond {CELL_LIMIT:g}")
    return values


def complete_numbers(table: Table, name: str) -> NDArray[np.float64]:
    """A column as float64 in which an empty cell is refused too."""
    values = numbers(table, name)
    refuse(table, name, np.isnan(values), "the cell is empty or not a number")
    return values


def categories(table: Table, name: str) -> NDArray[Any]:
    """A column as text, "" for an empty cell; whole numbers are written without a point."""
    column = table[name]
    match column.dtype.kind:
        case "T":
            return column
        case "b" | "i" | "u":
            return column.astype(TEXT)
        case "f":
            whole = column == np.floor(column)
            cells = zip(column.tolist(), whole.tolist(), strict=True)
            return np.array([_category(cell, whole=is_whole) for cell, is_whole in cells], TEXT)
        case _:
            refuse(table, name, _not_of(column, str, int), "the cell is neither text nor a number")
            return np.array(["" if cell is None else str(cell) for cell in column], TEXT)


def ids(table: Table, name: str, *, keep_empty: bool = False) -> NDArray[Any]:
    """An id column: all text or all integers; an empty cell is refused or becomes ""."""
    column = table[name]
    if keep_empty:
        column = _with_empties(table, name, column)
    match column.dtype.kind:
        case "i" | "u":
            if column.size and int(column.max()) > np.iinfo(np.int64).max:
                raise DataError(f"id column {name!r} holds integers beyond 64 bits; give text")
            return column.astype(np.int64)
        case "T":
            if not keep_empty:
                refuse(table, name, column == "", "the id is empty")
            return column
        case "f":
            refuse(table, name, np.isnan(column), "the id is empty")
            raise DataError(f"id column {name!r} holds decimal numbers; give integers or text")
        case "O":
            refuse(table, name, np.array([cell is None for cell in column]), "the id is empty")
            refuse(table, name, _not_of(column, str), "the id is of another type than text")
            return column.astype(TEXT)
        case _:
            raise DataError(f"id column {name!r} holds {column.dtype}; give integers or text")


def _with_empties(table: Table, name: str, column: Column) -> Column:
    """Ids as text with "" for an empty cell, where the source has any."""
    if column.dtype.kind == "f":
        empty = np.isnan(column)
        exact = empty | ((column == np.floor(column)) & (np.abs(column) < 2.0**53))
        refuse(table, name, ~exact, "the id is not a whole number")
        cells = zip(column.tolist(), empty.tolist(), strict=True)
        return np.array(["" if gone else str(int(cell)) for cell, gone in cells], TEXT)
    if column.dtype.kind == "O":
        return np.array(["" if cell is None else cell for cell in column], dtype=object)
    return column


def _parsed(table: Table, name: str, column: Column) -> NDArray[np.float64]:
    if column.dtype.kind == "O":
        refuse(table, name, _not_of(column, int, float, str), "the cell is not a number")
    cells = [_number_text(cell) for cell in column.tolist()]
    try:
        return np.array(cells, dtype=object).astype(np.float64)
    except (ValueError, OverflowError):
        values = [_float(cell) for cell in cells]
    bad = np.array([value is None for value in values])
    refuse(table, name, bad, "the cell is not a number; categories must be declared")
    return np.array(values, dtype=np.float64)


def _number_text(cell: Any) -> Any:
    if cell is None:
        return "nan"
    if isinstance(cell, str):
        text = cell.strip()
        # Python reads 1_000 as a thousand; in a file it is more likely a code.
        return "nan" if text in _NO_NUMBER else text.replace("_", "?")
    return cell


def _float(cell: Any) -> float | None:
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None


def _category(cell: float, *, whole: bool) -> str:
    if np.isnan(cell):
        return ""
    return str(int(cell)) if whole and np.isfinite(cell) else repr(cell)


def _not_of(column: Column, *kinds: type) -> Mask:
    return np.array(
        [
            cell is not None and (isinstance(cell, bool) or not isinstance(cell, kinds))
            for cell in column
        ],
        dtype=np.bool_,
    )
