"""One chunk of a source, each column read according to its role: ids, numbers, words.

It owns which column is read as what and the refusal of cells of the wrong kind; constants are
applied later. A chunk's numbers are one matrix with a row for each column, so that checks and sums
run over all columns at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.columns import (
    CELL_LIMIT,
    Words,
    as_float,
    categories,
    complete_numbers,
    ids,
    refuse_beyond,
)
from hdpvfl_mq.data.moments import ChunkMoments, Numbers, moments_of
from hdpvfl_mq.data.tables import Column, Piece, Pieced, Table, refuse
from hdpvfl_mq.errors import DataError
from schemas.data import ColumnRule, DataSettings, NamedColumn
from schemas.ids import PartyRole

FAULTS_SHOWN = 20
NO_NUMBER_STATED = "the cell is empty; state missing in data.rules: a number, or learn for the mean"


class Source(Protocol):
    """Rows that can be read chunk by chunk, as often as needed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""

    @property
    def hint(self) -> str:
        """A likely cause of a missing column, or an empty text."""

    def chunks(
        self, columns: Sequence[str] | None = None, *, numeric: Sequence[str] = (), after: int = 0
    ) -> Iterator[Table]:
        """The rows in order; `numeric` columns as numbers if all cells are numbers.

        Chunks of the first `after` rows are left out.
        """

    def pieces(self, columns: Sequence[str], *, numeric: Sequence[str]) -> Iterator[Pieced]:
        """The same chunks, to be decoded by an engine, or nothing."""

    def places(self, columns: Sequence[str], *, numeric: Sequence[str]) -> Iterator[Piece | None]:
        """The same chunks, for workers that read them from the source, or nothing."""


class Faults:
    """The faults of a source: one sentence for each column, about its first fault."""

    def __init__(self) -> None:
        self._found: dict[str | None, str] = {}

    @contextmanager
    def of(self, column: str | None) -> Iterator[None]:
        """Record a fault of this column and continue."""
        try:
            yield
        except DataError as fault:
            self._found.setdefault(column, str(fault))

    def __bool__(self) -> bool:
        return bool(self._found)

    def text(self) -> str:
        """All faults in one line, or the first ones if there are many."""
        found = list(self._found.values())
        more = (
            f"; and {len(found) - FAULTS_SHOWN} more columns" if len(found) > FAULTS_SHOWN else ""
        )
        return "; ".join(found[:FAULTS_SHOWN]) + more


@dataclass(frozen=True)
class Reading:
    """How a source is read: a rule for each feature column, and the columns with other roles."""

    settings: DataSettings
    rules: tuple[NamedColumn, ...]
    id_columns: tuple[str, ...]

    @property
    def numeric(self) -> tuple[NamedColumn, ...]:
        """Rules of feature columns that are numbers."""
        return tuple(rule for rule in self.rules if rule.categories is None)

    @property
    def words(self) -> tuple[NamedColumn, ...]:
        """Rules of feature columns that are categories."""
        return tuple(rule for rule in self.rules if rule.categories is not None)

    @property
    def as_numbers(self) -> list[str]:
        """The columns to read as numbers."""
        own = self.settings
        label = own.label_column if own.label_classes is None else None
        others = (own.weight_column, own.offset_column, label)
        return [rule.name for rule in self.numeric] + [name for name in others if name]

    @property
    def wanted(self) -> list[str]:
        """All columns to read."""
        own = self.settings
        others = (own.label_column, own.weight_column, own.offset_column)
        named = [name for name in others if name]
        return [*self.id_columns, *named, *(rule.name for rule in self.rules)]

    def parsed(self, chunk: Table, faults: Faults) -> Parsed:
        """The cells of a chunk; faults are recorded, and then not all cells are there."""
        own, first_row, numeric = self.settings, chunk.first_row, self.numeric
        matrix, low, high = self._numbers(chunk, faults)
        words: dict[str, Words] = {}
        for rule in self.words:
            with faults.of(rule.name):
                words[rule.name] = categories(chunk, rule.name)
                _check_words(rule, words[rule.name], first_row)
        found_ids: list[Column] = []
        for name in self.id_columns:
            with faults.of(name):
                found_ids.append(ids(chunk, name, keep_empty=own.empty_ids == "keep"))
        label = weights = offset = None
        with faults.of(own.label_column):
            label = _label(chunk, own)
        with faults.of(own.weight_column):
            weights = _weights(chunk, own.weight_column)
        with faults.of(own.offset_column):
            offset = complete_numbers(chunk, own.offset_column) if own.offset_column else None
        learning = [place for place, rule in enumerate(numeric) if learns(rule)]
        return Parsed(
            first_row=first_row,
            numbers=matrix,
            moments=moments_of(matrix, low, high, learning=() if faults else learning),
            words=words,
            ids=tuple(found_ids),
            label=label,
            weights=weights,
            offset=offset,
        )

    def _numbers(self, chunk: Table, faults: Faults) -> tuple[Numbers, Numbers, Numbers]:
        """The numeric features, a row for each column, and the least and largest cell of each."""
        numeric = self.numeric
        matrix = np.zeros((len(numeric), chunk.rows))
        for place, rule in enumerate(numeric):
            with faults.of(rule.name):
                matrix[place] = as_float(chunk, rule.name)
        low, high = matrix.min(axis=1), matrix.max(axis=1)
        # Check all columns at once; comparisons with NaN are false, so an empty cell is a suspect.
        suspects = np.flatnonzero(~((low >= -CELL_LIMIT) & (high <= CELL_LIMIT)))
        for place in suspects.tolist():
            with faults.of(numeric[place].name):
                self._check_numbers(numeric[place], matrix[place], chunk.first_row)
        return matrix, low, high

    @staticmethod
    def _check_numbers(rule: NamedColumn, values: NDArray[np.float64], first_row: int) -> None:
        refuse_beyond(first_row, rule.name, values)
        if rule.missing == "error":
            refuse(first_row, rule.name, np.isnan(values), NO_NUMBER_STATED)


@dataclass(frozen=True, repr=False)
class Parsed:
    """A chunk's cells, not yet standardised."""

    first_row: int
    numbers: NDArray[np.float64]  # a row for each numeric feature column
    moments: ChunkMoments  # of these
    words: dict[str, Words]
    ids: tuple[Column, ...]
    label: NDArray[np.float64] | None  # a number, or the position among the declared classes
    weights: NDArray[np.float64] | None
    offset: NDArray[np.float64] | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.numbers.shape[1])


def learns(rule: ColumnRule) -> bool:
    """Whether a constant of this rule is fitted to the rows."""
    return "learn" in (rule.centre, rule.scale, rule.missing, rule.categories)


def reading(source: Source, settings: DataSettings, role: PartyRole) -> Reading:
    """How to read a source: one rule for each feature column, its own or the default."""
    features = _feature_names(source, settings, role)
    own = {rule.name: rule for rule in settings.rules}
    default = dict(settings.default)
    rules = (own.get(name) or NamedColumn(name=name, **default) for name in features)
    return Reading(settings, tuple(rules), settings.id_columns)


def _feature_names(source: Source, settings: DataSettings, role: PartyRole) -> tuple[str, ...]:
    """The columns that become features; a passive party's label column is refused."""
    special = [settings.label_column, settings.weight_column, settings.offset_column]
    named = [name for name in special if name]
    if role == "passive" and named:
        listed = ", ".join(map(repr, named))
        raise DataError(f"a passive party has no label, weight or offset; take out {listed}")
    others = {*settings.id_columns, *named}
    rules = (rule.name for rule in settings.rules)
    for name in (*sorted(others), *(settings.columns or ()), *rules):
        if name not in source.names:
            raise DataError(f"there is no column {name!r}{source.hint}")
    if settings.columns is not None:
        return settings.columns
    left = tuple(name for name in source.names if name not in others)
    if not left:
        raise DataError("no feature column is left")
    return left


_NOT_LISTED = 'the category is not in the declared list; add it, or state unknown = "zero"'


def _check_words(rule: NamedColumn, cells: Words, first_row: int) -> None:
    """Refuse empty cells and unknown words if the rule says so."""
    if rule.missing_category is None:
        is_empty = cells.among(frozenset({""}))
        refuse(first_row, rule.name, is_empty, "the cell is empty; state missing_category")
    if rule.categories != "learn" and rule.unknown == "error":
        known = cells.among(frozenset({"", *(rule.categories or ())}))
        refuse(first_row, rule.name, ~known, _NOT_LISTED)


_NO_CLASSES = (
    "the label is not a number; list its values in data.label_classes, the one for 0 first"
)


def _label(chunk: Table, settings: DataSettings) -> NDArray[np.float64] | None:
    name, classes = settings.label_column, settings.label_classes
    if name is None:
        return None
    if classes is None:
        return complete_numbers(chunk, name, text=_NO_CLASSES)
    cells = categories(chunk, name)
    reason = "the label is not in the declared list data.label_classes"
    refuse(chunk.first_row, name, ~cells.among(frozenset(classes)), reason)
    places = [classes.index(word) if word in classes else -1 for word in cells.words]
    return np.array(places, dtype=np.float64)[cells.codes]


def _weights(chunk: Table, name: str | None) -> NDArray[np.float64] | None:
    if name is None:
        return None
    values = complete_numbers(chunk, name)
    refuse(chunk.first_row, name, values < 0.0, "the sample weight is negative")
    return values
