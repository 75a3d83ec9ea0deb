"""Arrow's functions on columns, called by name.

It owns the calls; it knows no settings. pyarrow.compute writes a Python function with a docstring
for each of 300 names when it is imported, which takes 0.1 s and 2 MiB. Methods of an Array, such as
`cast` and `take`, import it too. A Python value is given its type here: to find it, Arrow imports
dateutil.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import _compute as functions


def cast(column: Any, kind: Any, *, safe: bool = True) -> Any:
    """A column as another type; `safe` refuses cells that the type cannot hold."""
    options = functions.CastOptions.safe if safe else functions.CastOptions.unsafe
    return functions.call_function("cast", [column], options(kind))


def take(column: Any, places: Any) -> Any:
    """The cells at these places."""
    return functions.call_function("take", [column, places], functions.TakeOptions())


def filled(column: Any, value: Any) -> Any:
    """A column with this value in place of empty cells."""
    return functions.call_function("coalesce", [column, pa.scalar(value, column.type)])


def is_null(column: Any) -> Any:
    """Which cells are empty; NaN is a number here."""
    return functions.call_function("is_null", [column], functions.NullOptions())


def equal(column: Any, value: Any) -> Any:
    """Which cells equal a value."""
    return functions.call_function("equal", [column, pa.scalar(value, column.type)])


def is_in(column: Any, values: Any) -> Any:
    """Which cells are among these values."""
    options = functions.SetLookupOptions(value_set=values)
    return functions.call_function("is_in", [column], options)


def emptied(column: Any, places: Any) -> Any:
    """A column with an empty cell where `places` is true."""
    nothing = pa.scalar(None, column.type)
    return functions.call_function("if_else", [places, nothing, column])


def trimmed(column: Any) -> Any:
    """A text column without blanks around its cells."""
    return functions.call_function("utf8_trim_whitespace", [column])


def replaced(column: Any, old: str, new: str) -> Any:
    """A text column with one text replaced by another."""
    options = functions.ReplaceSubstringOptions(old, new)
    return functions.call_function("replace_substring", [column], options)


def joined(parts: Any, between: Any) -> Any:
    """The texts of each row joined into one."""
    parts = [*parts, between]
    return functions.call_function("binary_join_element_wise", parts, functions.JoinOptions())


def coded(column: Any) -> Any:
    """A column as codes and its distinct values; an empty cell has a code as well."""
    options = functions.DictionaryEncodeOptions("encode")
    return functions.call_function("dictionary_encode", [column], options)
