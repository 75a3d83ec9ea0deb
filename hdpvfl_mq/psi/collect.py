"""A party's distinct ids, collected chunk by chunk.

It owns which rows are dropped or refused; ids.py owns the normal form of a value. A row has an id
for each key that the rules name and that it fills in; with several keys, the number of the key is
the id's first byte. Ids are appended to allocated arrays, and repeated ids are found one part at a
time, so the ids may exceed memory. Errors count rows from 1, without the header, and never show a
value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

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
from hdpvfl_mq.arrays.distinct import distinct
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi.ids import IdColumn, canonical_column, joined
from hdpvfl_mq.psi.order import order_digest
from hdpvfl_mq.psi.packed import PackedIds, Packing
from schemas.config import IdRules

_ROWS_SHOWN = 5
_PART_BITS = 16  # ids searched for repeated ones at a time


@dataclass(frozen=True)
class NormalisedIds:
    """Distinct canonical ids, the row of the party's table each one came from, and its key."""

    ids: PackedIds = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)
    keys: NDArray[np.uint8] | None = field(default=None, repr=False)  # None: there is one key

    @cached_property
    def digest(self) -> bytes:
        """32 bytes, equal for the same ids in the same order. It never leaves the party."""
        return order_digest(self.ids, b"kept alignment")

    @property
    def people(self) -> int:
        """Number of rows with an id."""
        return len(self.ids) if self.keys is None else len(distinct(self.rows))

    def of_people(self, positions: NDArray[np.integer[Any]], allocate: Allocate) -> PackedIds:
        """The first id of the row of each of these ids: one name for a person, whatever the key."""
        if self.keys is None:
            return self.ids.chosen(positions, allocate)
        first = allocate((int(self.rows.max()) + 1,), np.int64)
        for key in range(int(self.keys.max()), -1, -1):  # the first key is written last
            for part in chunks(len(self.rows)):
                of_key = np.flatnonzero(self.keys[part] == key) + part.start
                first[self.rows[of_key]] = of_key
        named = gather(first, gather(self.rows, positions, allocate), allocate)
        return self.ids.chosen(named, allocate)


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
    """Collects the id columns of one chunk of rows after the other."""

    def __init__(self, rules: IdRules, allocate: Allocate) -> None:
        self._rules, self._allocate = rules, allocate
        self._packing = Packing(allocate)
        self._rows, self._hashes = Growing(np.int64, allocate), Growing(np.int64, allocate)
        self._keys = Growing(np.uint8, allocate)
        self._seen = 0
        self._empty = 0
        self._first_empty: list[int] = []

    def check(self, columns: Sequence[IdColumn]) -> None:
        """Refuse a number of columns other than the agreed one, or columns of unequal length."""
        agreed = self._rules.columns
        if len(columns) != agreed:
            raise DataError(f"{agreed} id columns are agreed, the table gives {len(columns)}")
        if len({len(column) for column in columns}) != 1:
            raise DataError("the id columns have different lengths")

    def add(self, columns: Sequence[IdColumn]) -> None:
        """Add the next rows; a value that cannot be an id is refused at once."""
        self.check(columns)
        parts = [
            canonical_column(column, self._rules, number=number, first_row=self._seen + 1)
            for number, column in enumerate(columns, start=1)
        ]
        count, keys = len(columns[0]), self._rules.key_columns
        rows = np.arange(self._seen, self._seen + count)
        self._seen += count
        is_empty = np.ones(count, dtype=np.bool_)
        for number, key in enumerate(keys):
            ids = parts[key.start]
            if key.stop - key.start > 1:
                ids = list(map(joined, zip(*parts[key], strict=True)))
            filled = np.fromiter(map(bool, ids), dtype=np.bool_, count=count)
            is_empty &= ~filled
            tag = bytes([number]) if len(keys) > 1 else b""
            self._add_key([tag + each for each in ids if each], rows[filled], number)
        self._note_empty(rows[is_empty])

    def _add_key(self, ids: list[bytes], rows: NDArray[np.int64], number: int) -> None:
        """Append the ids of one key."""
        self._packing.add(ids)
        self._rows.add(rows)
        if len(self._rules.key_columns) > 1:
            self._keys.add(np.full(len(ids), number, dtype=np.uint8))
        # Python's hash may differ from run to run; it only selects which ids to compare.
        self._hashes.add(np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)))

    def distinct(self) -> NormalisedIds:
        """The first occurrence of each id, after all rows are added."""
        if self._empty and self._rules.empties == "error":
            where = _rows_text(self._first_empty, self._empty)
            raise DataError(f"empty ids in {where}: fill them in or set empties to 'drop'")
        ids, rows = self._packing.packed, self._rows.filled
        keys = self._keys.filled if len(self._rules.key_columns) > 1 else None
        spares_first = self._rules.duplicates != "ignore"
        is_repeated = _repeated(ids, self._hashes.filled, self._allocate, spares_first=spares_first)
        repeats = int(np.count_nonzero(is_repeated))
        if repeats and self._rules.duplicates == "error":
            where = _rows_text(rows[marked(is_repeated, self._allocate)[:_ROWS_SHOWN]], repeats)
            raise DataError(
                f"repeated ids in {where}: remove them, or set duplicates to 'first' (use the "
                "first row) or to 'ignore' (use none of them)"
            )
        if repeats:
            kept = marked(np.logical_not(is_repeated, out=is_repeated), self._allocate)
            ids, rows = ids.chosen(kept, self._allocate), gather(rows, kept, self._allocate)
            keys = None if keys is None else gather(keys, kept, self._allocate)
        return NormalisedIds(ids, rows, keys)

    def _note_empty(self, rows: NDArray[np.int64]) -> None:
        self._empty += len(rows)
        self._first_empty += rows[: _ROWS_SHOWN - len(self._first_empty)].tolist()


def _repeated(
    ids: PackedIds, hashes: NDArray[np.int64], allocate: Allocate, *, spares_first: bool
) -> NDArray[np.bool_]:
    """Mark every id that equals an earlier one, or any other one; equal ids are in one part."""
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
            first: dict[bytes, int] = {}
            for place, each in enumerate(ids.at(suspects)):
                if first.setdefault(each, place) != place:
                    is_repeated[suspects[place]] = True
                    is_repeated[suspects[first[each]]] |= not spares_first
    return is_repeated


def _rows_text(first_rows: Sequence[int] | NDArray[np.int64], count: int) -> str:
    shown = ", ".join(str(row + 1) for row in first_rows)
    more = f" and {count - _ROWS_SHOWN} more" if count > _ROWS_SHOWN else ""
    return f"rows {shown}{more}"
