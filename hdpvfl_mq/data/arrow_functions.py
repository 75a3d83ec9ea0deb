"""Arrow's functions on columns, called by name.

It owns the calls; it knows no settings. pyarrow.compute writes a Python function with a docstring
for each of 300 names when it is imported, which takes 0.1 s and 2 MiB. Methods of an Array, such as
`cast` and `take`, import it too. A Python value is given its type here: to find it, Arrow imports
dateutil.

Even Arrow's own module of functions is loaded with the first call: it takes 7 MiB, and a party that
reads ids and plain numbers from CSV calls none.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa


@cache
def _functions() -> Any:
    from pyarrow import _compute  # noqa: PLC0415 - see above

    return _compute


def cast(column: Any, kind: Any, *, safe: bool = True) -> Any:
    """A column as another type; `safe` refuses cells that the type cannot hold."""
    kinds = _functions().CastOptions
    options = kinds.safe(kind) if safe else kinds.unsafe(kind)
    return _functions().call_function("cast", [column], options)


def take(column: Any, places: Any) -> Any:
    """The cells at these places."""
    return _functions().call_function("take", [column, places], _functions().TakeOptions())


def filled(column: Any, value: Any) -> Any:
    """A column with this value in place of empty cells."""
    return _functions().call_function("coalesce", [column, pa.scalar(value, column.type)])


def is_in(column: Any, values: Any) -> Any:
    """Which cells are among these values."""
    options = _functions().SetLookupOptions(value_set=values)
    return _functions().call_function("is_in", [column], options)


def emptied(column: Any, places: Any) -> Any:
    """A column with an empty cell where `places` is true."""
    nothing = pa.scalar(None, column.type)
    return _functions().call_function("if_else", [places, nothing, column])


def trimmed(column: Any) -> Any:
    """A text column without blanks around its cells."""
    return _functions().call_function("utf8_trim_whitespace", [column])


def replaced(column: Any, old: str, new: str) -> Any:
    """A text column with one text replaced by another."""
    options = _functions().ReplaceSubstringOptions(old, new)
    return _functions().call_function("replace_substring", [column], options)


def coded(column: Any) -> Any:
    """A column as codes and its distinct values; an empty cell has a code as well."""
    options = _functions().DictionaryEncodeOptions("encode")
    return _functions().call_function("dictionary_encode", [column], options)
