"""A party's distinct ids, collected chunk by chunk. Owns what is dropped or refused, by row.

What a value's normal form is belongs to ids.py. Ids go into allocated arrays as they come,
and repeated ones are found a part at a time, so that ids may be more than memory holds. Errors
count rows from 1, the header apart, and never show a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import (
    OBJECT_ROWS,
    Allocate,
    Growing,
    chunks,
    gather,
    group,
    marked,
    marks,
)
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi.ids import IdColumn, canonical_column, joined
from hdpvfl_mq.psi.packed import PackedIds, Packing
from schemas.config import IdRules

_ROWS_SHOWN = 5
_PART_BITS = 16  # ids that are looked through for repeated ones at a time


@dataclass(frozen=True)
class NormalisedIds:
    """Distinct canonical ids and the row of the party's table each one came from."""

    ids: PackedIds = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)
    dropped_empty: int
    dropped_duplicates: int


def normalise(
    columns: Sequence[IdColumn], rules: IdRules, allocate: Allocate = np.empty
) -> NormalisedIds:
    """Canonical ids of a table's id columns.

    *Guarantee*: the same table and rules give the same bytes.
    """
    collector = IdCollector(rules, allocate)
    collector.check(columns)
    for part in chunks(len(columns[0]), OBJECT_ROWS):
        collector.add([column[part] for column in columns])
    return collector.distinct()


class IdCollector:
    """Takes the id columns of one chunk of rows after the other."""

    def __init__(self, rules: IdRules, allocate: Allocate) -> None:
        self._rules, self._allocate = rules, allocate
        self._packing = Packing(allocate)
        self._rows, self._hashes = Growing(np.int64, allocate), Growing(np.int64, allocate)
        self._seen = 0
        self._empty = 0
        self._first_empty: list[int] = []

    def check(self, columns: Sequence[IdColumn]) -> None:
        """Refuse another number of columns than agreed, or columns that do not match."""
        agreed = self._rules.columns
        if len(columns) != agreed:
            raise DataError(f"{agreed} id columns are agreed, the table gives {len(columns)}")
        if len({len(column) for column in columns}) != 1:
            raise DataError("the id columns have different lengths")

    def add(self, columns: Sequence[IdColumn]) -> None:
        """The next rows; a value that cannot be an id is refused at once."""
        self.check(columns)
        parts = [
            canonical_column(column, self._rules, number=number, first_row=self._seen + 1)
            for number, column in enumerate(columns, start=1)
        ]
        ids = parts[0] if len(parts) == 1 else list(map(joined, zip(*parts, strict=True)))
        rows = np.arange(self._seen, self._seen + len(ids))
        self._seen += len(ids)
        if b"" in ids:
            is_empty = np.array([not each for each in ids])
            self._note_empty(rows[is_empty])
            ids, rows = [each for each in ids if each], rows[~is_empty]
        self._packing.add(ids)
        self._rows.add(rows)
        # The interpreter's hash may differ from run to run; it only says which ids to compare.
        self._hashes.add(np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)))

    def distinct(self) -> NormalisedIds:
        """First occurrences, once all rows are there."""
        if self._empty and self._rules.empties == "error":
            where = _rows_text(self._first_empty, self._empty)
            raise DataError(f"empty ids in {where}: fill them in or set empties to 'drop'")
        ids, rows = self._packing.packed, self._rows.filled
        is_repeated = _repeated(ids, self._hashes.filled, self._allocate)
        repeats = int(np.count_nonzero(is_repeated))
        if repeats and self._rules.duplicates == "error":
            where = _rows_text(rows[marked(is_repeated, self._allocate)[:_ROWS_SHOWN]], repeats)
            raise DataError(f"repeated ids in {where}: remove them or set duplicates='first'")
        if repeats:
            kept = marked(np.logical_not(is_repeated, out=is_repeated), self._allocate)
            ids, rows = ids.chosen(kept, self._allocate), gather(rows, kept, self._allocate)
        return NormalisedIds(ids, rows, self._empty, repeats)

    def _note_empty(self, rows: NDArray[np.int64]) -> None:
        self._empty += len(rows)
        self._first_empty += rows[: _ROWS_SHOWN - len(self._first_empty)].tolist()


def _repeated(ids: PackedIds, hashes: NDArray[np.int64], allocate: Allocate) -> NDArray[np.bool_]:
    """Marks every id that an earlier one equals: equal ids are in the same part."""
    is_repeated = marks(len(ids), allocate)
    bits = max(1, len(ids).bit_length() - _PART_BITS)
    shift = np.uint64(64 - bits)
    parts = group(
        lambda part: hashes[part].view(np.uint64) >> shift,
        len(ids),
        groups=1 << bits,
        allocate=allocate,
    )
    for positions in parts:
        here = hashes[positions]
        ordered = np.sort(here)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            suspects = positions[np.isin(here, twice)]
            seen: set[bytes] = set()
            for place, each in enumerate(ids.at(suspects)):
                if each in seen:
                    is_repeated[suspects[place]] = True
                seen.add(each)
    return is_repeated


def _rows_text(first_rows: Sequence[int] | NDArray[np.int64], count: int) -> str:
    shown = ", ".join(str(row + 1) for row in first_rows)
    more = f" and {count - _ROWS_SHOWN} more" if count > _ROWS_SHOWN else ""
    return f"rows {shown}{more}"
