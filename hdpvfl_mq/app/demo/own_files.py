"""A user's own files as the data set of a local federation: one file per party, one id column.

It owns how files become parties, a label of two values and a named data set; it knows no process.
Files are read once. Only the id and label columns are renamed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from hdpvfl_mq.data.bundled import SplitDataset
from hdpvfl_mq.data.cards import Card
from hdpvfl_mq.data.csv_stream import PLAIN, Dialect
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table, concatenate, refuse
from hdpvfl_mq.errors import DataError, SettingsError
from schemas.config import IdRules
from schemas.ids import PARTY_PATTERN
from schemas.model import LossSpec

# All own files share one name, so a person in two of them has one budget at a party, not two.
OWN = "own-files"
LIFETIME_EPSILON = 10.0
ID, LABEL = "id", "y"
_WHOLE = r"^(0|[1-9][0-9]{0,17})$"
_NUMBER = r"^\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|NaN|NA)?\s*$"
_EMPTY = r"^\s*(nan|NaN|NA)?\s*$"
_BIT = r"^\s*[01](\.0*)?\s*$"
_COMMA = r"^\s*[+-]?[0-9]+,[0-9]+\s*$"
_MOSTLY = 0.5


@dataclass(frozen=True)
class OwnFiles:
    """Options that describe the user's files."""

    active: Path
    passives: tuple[Path, ...]
    id_column: str
    label: str
    positive: str | None = None  # the value of the label that counts as 1
    dialect: Dialect = PLAIN

    @property
    def parties(self) -> tuple[str, tuple[str, ...]]:
        """The parties, named after their files."""
        names = [party_name(path) for path in (self.active, *self.passives)]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise SettingsError(f"two files would be called {twice.pop()}: rename one of them")
        return names[0], tuple(names[1:])


def party_name(path: Path) -> str:
    """The name of the party that holds a file."""
    plain = path.name.partition(".")[0].lower()
    name = re.sub(r"[^a-z0-9_-]+", "-", plain)[:32].strip("-")
    if not re.match(PARTY_PATTERN, name) or name == "coordinator":
        raise SettingsError(
            f"{path}: a party is named after its file, by a letter first: rename it"
        )
    return name


def load_own(files: OwnFiles) -> SplitDataset:
    """Read every file; DataError or SettingsError names the file, the column and the remedy."""
    roles = {files.id_column: ID, files.label: LABEL}
    active = _read(files.active, roles, files.dialect)
    passives = tuple(_read(path, {files.id_column: ID}, files.dialect) for path in files.passives)
    labelled = _labelled(active, files)
    return own_dataset(labelled, passives)


def own_dataset(active: Table, passives: Sequence[Table]) -> SplitDataset:
    """Tables of the parties as a data set; text columns become categories."""
    texts = {
        name
        for table in (active, *passives)
        for name in table.names
        if name not in (ID, LABEL) and not _is_numeric(table, name)
    }
    columns = (len(active.names) - 2, sum(len(table.names) - 1 for table in passives))
    card = Card(
        task="binary",
        loss=LossSpec(name="logistic"),
        rows=active.rows,
        columns=columns,
        origin="own files",
        licence="yours",
        categorical=tuple(sorted(texts)),
    )
    return SplitDataset(OWN, card, active, passives[0], given=tuple(passives))


def id_rules(dataset: SplitDataset) -> IdRules:
    """Integer ids if all ids of all files are whole numbers, else text."""
    tables = (dataset.active, dataset.passive, *dataset.given)
    whole = all(_match(table, ID, _WHOLE).all() for table in tables)
    return IdRules(kind="integer" if whole else "text")


def _is_numeric(table: Table, name: str) -> bool:
    """Whether a column is numeric; DataError if most of its cells are numbers but not all."""
    if not types.is_large_string(table.arrow(name).type):
        return True
    good = _match(table, name, _NUMBER)
    if _match(table, name, _COMMA).mean() >= _MOSTLY:
        raise DataError(f"column {name!r} has numbers with a decimal comma: say --decimal ,")
    if good.mean() < _MOSTLY:
        return False
    refuse(1, name, ~good, "the cell is no number, while most of the column are")
    return True


def _match(table: Table, name: str, form: str) -> NDArray[np.bool_]:
    """Which cells match a pattern; an empty cell matches every pattern but that of an id."""
    cells = pc.fill_null(pc.cast(table.arrow(name), pa.large_string()), "")
    return np.asarray(pc.match_substring_regex(cells, form))


def _read(path: Path, renamed: dict[str, str], dialect: Dialect) -> Table:
    if not path.exists():
        raise SettingsError(f"there is no file {path}")
    try:
        source = TableFile(path, dialect=dialect)
        table = concatenate(list(source.chunks()))
    except DataError as wrong:
        text = str(wrong).removeprefix(f"{path.name}: ")
        raise DataError(f"{path}: {_as_options(text + _hint(path, dialect))}") from None
    for column, name in renamed.items():
        if column not in table.names:
            names = ", ".join(table.names)
            hint = _as_options(source.hint)
            raise DataError(f"{path} has no column {column!r}; it has {names}{hint}")
        if column != name and name in table.names:
            raise DataError(f"{path}: column {name!r} has a name that is used for {column!r} here")
    if len(table.names) <= len(renamed):
        raise DataError(f"{path} has no feature column")
    columns = [table.arrow(name) for name in table.names]
    if dialect.decimal == ",":
        columns = [_with_points(column) for column in columns]
    _refuse_empty(path, Table(table.names, columns), renamed)
    return Table([renamed.get(name, name) for name in table.names], columns)


def _hint(path: Path, dialect: Dialect) -> str:
    """A likely cause of an unreadable file."""
    try:
        return TableFile(path, dialect=dialect).hint
    except DataError:  # it is in the header
        return ""


def _as_options(text: str) -> str:
    """A remedy in the words of the command line, not of a settings file."""
    words = {"set data.separator": "say --separator", "set data.encoding": "say --encoding"}
    for setting, option in words.items():
        text = text.replace(setting, option)
    return text


def _refuse_empty(path: Path, table: Table, roles: dict[str, str]) -> None:
    """DataError for every column of numbers with empty cells: nothing says what they mean."""
    found = []
    for name in table.names:
        if name in roles or not _is_numeric(table, name):
            continue
        cells = pc.fill_null(pc.cast(table.arrow(name), pa.large_string()), "")
        try:
            refuse(1, name, np.asarray(pc.match_substring_regex(cells, _EMPTY)), "empty")
        except DataError as empty:
            found.append(str(empty))
    if found:
        remedy = "fill the cells, or leave the column out (a service's settings can say `missing`)"
        raise DataError(f"{path}: {'; '.join(found)}: {remedy}")


def _with_points(column: Any) -> Any:
    """Replace decimal commas in a column of numbers by points; return other columns unchanged."""
    if not types.is_large_string(column.type):
        return column
    points = pc.replace_substring(column, ",", ".", max_replacements=1)
    good = pc.match_substring_regex(pc.fill_null(points, ""), _NUMBER)
    return points if pc.all(good).as_py() else column


def _labelled(table: Table, files: OwnFiles) -> Table:
    """The table with its label mapped to 0 and 1."""
    label = table[LABEL]
    if files.positive is not None:
        marked = np.array([_same(cell, files.positive) for cell in label.tolist()])
        if not marked.any():
            raise SettingsError(f"--positive: no label of {files.active} has this value")
        values = marked.astype(np.int64)
    elif not _is_numeric(table, LABEL):
        raise SettingsError(
            f"{files.active}: column {files.label!r} holds text; say which value counts as 1: "
            "--positive VALUE"
        )
    elif not _match(table, LABEL, _BIT).all():
        raise SettingsError(
            f"{files.active}: column {files.label!r} holds other labels than 0 and 1; say "
            "which value counts as 1: --positive VALUE; counts and amounts need public bounds, see "
            "docs/data.md"
        )
    else:
        values = label.astype(np.float64).astype(np.int64)
    columns = [values if name == LABEL else table.arrow(name) for name in table.names]
    return Table(table.names, columns)


def _same(cell: object, wanted: str) -> bool:
    if isinstance(cell, float) and cell.is_integer():
        return wanted in (str(cell), str(int(cell)))
    return str(cell).strip() == wanted
