"""Every fault of a user's own file at once, in the words of the command line.

It owns which cells of a file cannot be used and their remedies; it reads no file and knows no
party. Row numbers count from 1, without the header. No text carries a value.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from hdpvfl_mq.data.tables import Table, refuse
from hdpvfl_mq.errors import DataError

_NUMBER = r"^\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|NaN|NA)?\s*$"
_EMPTY = r"^\s*(nan|NaN|NA)?\s*$"
_COMMA = r"^\s*[+-]?[0-9]+,[0-9]+\s*$"
_MOSTLY = 0.5
NOT_A_NUMBER_TEXT = "not a number, although most of the column is: correct the cells"
EMPTY = "empty: fill the cells, or leave the column out (a service's settings can say `missing`)"
FAULTS_SHOWN = 8


def faults(table: Table, *, id_column: str, label: str | None) -> list[str]:
    """One sentence for each fault of a file; empty if it can be used."""
    found = []
    for name in table.names:
        checks = {id_column: _id_faults, label: _label_faults}.get(name, _feature_faults)
        found += checks(table, name)
    return found


def in_one_line(found: list[str]) -> str:
    """All faults of a file, or the first ones if there are many."""
    more = len(found) - FAULTS_SHOWN
    return "; ".join(found[:FAULTS_SHOWN]) + (f"; and {more} more faults" if more > 0 else "")


def is_numeric(table: Table, name: str) -> bool:
    """Whether most cells of a column are numbers; other columns become categories."""
    if not types.is_large_string(table.arrow(name).type):
        return True
    return bool(matching(table, name, _NUMBER).mean() >= _MOSTLY)


def matching(table: Table, name: str, form: str) -> NDArray[np.bool_]:
    """Which cells match a pattern; an empty cell is an empty text."""
    cells = pc.fill_null(pc.cast(table.arrow(name), pa.large_string()), "")
    return np.asarray(pc.match_substring_regex(cells, form))


def as_numbers(column: pa.Array) -> pa.Array:
    """A column of numbers with points instead of decimal commas; other columns are unchanged."""
    if not types.is_large_string(column.type):
        return column
    points = pc.replace_substring(column, ",", ".", max_replacements=1)
    good = pc.match_substring_regex(pc.fill_null(points, ""), _NUMBER)
    return points if pc.mean(pc.cast(good, pa.float64())).as_py() >= _MOSTLY else column


def _feature_faults(table: Table, name: str) -> list[str]:
    if matching(table, name, _COMMA).mean() >= _MOSTLY:
        return [f"column {name!r} has numbers with a decimal comma: add --decimal ,"]
    if not is_numeric(table, name):
        return []
    empty = matching(table, name, _EMPTY)
    return [
        *_said(name, empty, EMPTY),
        *_said(name, ~matching(table, name, _NUMBER) & ~empty, NOT_A_NUMBER_TEXT),
    ]


def _id_faults(table: Table, name: str) -> list[str]:
    cells = pc.utf8_trim_whitespace(
        pc.fill_null(pc.cast(table.arrow(name), pa.large_string()), "")
    ).to_numpy(zero_copy_only=False)
    _, first = np.unique(cells, return_index=True)
    is_repeated = np.ones(len(cells), dtype=bool)
    is_repeated[first] = False
    empty = cells == ""
    return [
        *_said(name, empty, "the id is empty: remove the rows"),
        *_said(name, is_repeated & ~empty, "an earlier row has the same id: keep one of them"),
    ]


def _label_faults(table: Table, name: str) -> list[str]:
    empty = matching(table, name, _EMPTY)
    return _said(name, empty, "the label is empty: fill it, or remove the rows")


def _said(name: str, bad: NDArray[np.bool_], reason: str) -> list[str]:
    try:
        refuse(1, name, bad, reason)
    except DataError as fault:
        return [str(fault)]
    return []
