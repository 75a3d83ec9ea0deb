"""One raw column read as numbers, as categories or as ids, or refused by row number.

It owns what an empty cell looks like and which kinds are accepted where; it knows no settings.
Errors name the column and row numbers, never a cell. A whole column is converted at once; if that
fails, it is read cell by cell, to find the rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from hdpvfl_mq.data import arrow_functions as functions
from hdpvfl_mq.data.tables import TEXT, Column, Table, refuse
from hdpvfl_mq.errors import DataError

# Squares and sums of cells this large are still finite doubles.
CELL_LIMIT = 1e18
EMPTY = "the cell is empty or not a number"
NO_NUMBER = ("", "NA", "N/A", "NaN", "nan", "null", "None")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Words:
    """A column of categories: its distinct words, and the word of each row."""

    words: tuple[str, ...]  # "" is an empty cell
    codes: NDArray[np.int64]

    def among(self, known: frozenset[str]) -> NDArray[np.bool_]:
        """Which rows have one of these words."""
        return np.array([word in known for word in self.words], dtype=np.bool_)[self.codes]


def numbers(table: Table, name: str, *, text: str = "") -> NDArray[np.float64]:
    """A column as float64, NaN for an empty cell; infinite or unreadable cells are refused."""
    values = as_float(table, name, text=text)
    refuse_beyond(table.first_row, name, values)
    return values


def complete_numbers(table: Table, name: str, *, text: str = "") -> NDArray[np.float64]:
    """A column as float64; empty cells are refused too."""
    values = numbers(table, name, text=text)
    refuse(table.first_row, name, np.isnan(values), EMPTY)
    return values


def refuse_beyond(first_row: int, name: str, values: NDArray[np.float64]) -> None:
    """Refuse infinite cells and cells too large to square and add up."""
    refuse(first_row, name, np.isinf(values), "the cell is not finite")
    refuse(first_row, name, np.abs(values) > CELL_LIMIT, f"the cell is beyond {CELL_LIMIT:g}")


def categories(table: Table, name: str) -> Words:
    """A column as words; whole numbers are written without a point."""
    column = table.arrow(name)
    if not types.is_large_string(column.type):
        _number_kind(name, column)
    coded = functions.coded(column)
    words = tuple(map(_word, coded.dictionary.to_pylist()))
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Words(words, codes)


def ids(table: Table, name: str, *, keep_empty: bool = False) -> Column:
    """An id column: all text or all integers; an empty cell is refused or becomes ""."""
    column = table.arrow(name)
    if types.is_floating(column.type):
        column = _whole(table, name, column, keep_empty=keep_empty)
    if types.is_date(column.type):
        column = functions.cast(column, pa.large_string())
    is_text = types.is_large_string(column.type)
    if not (is_text or types.is_integer(column.type) or types.is_null(column.type)):
        raise DataError(f"id column {name!r} holds {column.type}; give integers or text")
    if types.is_integer(column.type) and not column.null_count:
        return _integers(name, column)
    cells = ["" if cell is None else str(cell) for cell in column.to_pylist()]
    if not keep_empty:
        empty = np.array([not cell for cell in cells], dtype=np.bool_)
        refuse(table.first_row, name, empty, "the id is empty")
    return np.array(cells, dtype=TEXT)


def _integers(name: str, column: Any) -> NDArray[np.int64]:
    try:
        exact = column if types.is_int64(column.type) else functions.cast(column, pa.int64())
    except pa.ArrowInvalid:
        raise DataError(f"id column {name!r} holds integers beyond 64 bits; give text") from None
    return np.asarray(exact.to_numpy(zero_copy_only=False))


def _whole(table: Table, name: str, column: Any, *, keep_empty: bool) -> Any:
    """Integers with empty cells, which some sources store as floats; refused unless wanted."""
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    empty = np.isnan(values)
    if not keep_empty:
        refuse(table.first_row, name, empty, "the id is empty")
        raise DataError(f"id column {name!r} holds decimal numbers; give integers or text")
    exact = empty | ((values == np.floor(values)) & (np.abs(values) < 2.0**53))
    refuse(table.first_row, name, ~exact, "the id is not a whole number")
    return pa.array(np.where(empty, 0.0, values).astype(np.int64), mask=empty)


def _number_kind(name: str, column: Any) -> None:
    kind = column.type
    if not (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
    ):
        raise DataError(f"column {name!r} holds {kind}, which is neither numbers nor text")


def as_float(table: Table, name: str, *, text: str = "") -> NDArray[np.float64]:
    """A column as float64, NaN for an empty cell; only cells that are not numbers are refused.

    `text` says what to do about them, if not the usual.
    """
    column = table.arrow(name)
    if types.is_float64(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if not types.is_large_string(column.type):
        _number_kind(name, column)
        values = functions.cast(column, pa.float64(), safe=False)
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    values, bad = parsed(column)
    if bad.any():
        is_comma = [
            _DECIMAL_COMMA.fullmatch(column[int(row)].as_py()) for row in np.flatnonzero(bad)
        ]
        reason = text or "the cell is not a number; correct it, or declare categories in data.rules"
        hint = "the cell has a decimal comma: set data.decimal = ','"
        refuse(table.first_row, name, bad, hint if any(is_comma) else reason)
    return values


def parsed(column: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A text column as numbers, NaN for an empty cell, and a mask of cells that are not numbers."""
    trimmed = functions.trimmed(column)
    empty = functions.is_in(trimmed, pa.array(NO_NUMBER, pa.large_string()))
    try:
        values = functions.cast(functions.emptied(trimmed, empty), pa.float64())
        return values.to_numpy(zero_copy_only=False), np.zeros(len(column), dtype=np.bool_)
    except pa.ArrowInvalid:
        cells = [_float(cell) for cell in column.to_pylist()]
    bad = np.array([cell is None for cell in cells], dtype=np.bool_)
    return np.array(cells, dtype=np.float64), bad


def _float(cell: str | None) -> float | None:
    """Parse numbers that Python accepts and Arrow may not: "+1", digits of other scripts."""
    text = (cell or "").strip()
    if text in NO_NUMBER:
        return float("nan")
    try:
        # Python reads 1_000 as a thousand; in a file it is more likely a code.
        return float(text.replace("_", "?"))
    except ValueError:
        return None


def _word(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return str(int(cell)) if cell == np.floor(cell) and np.isfinite(cell) else repr(cell)
    return str(cell)
