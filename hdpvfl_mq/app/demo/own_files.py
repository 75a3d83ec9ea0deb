"""A user's own files as the data set of a local federation: one file per party, one id column.

It owns how files become parties, a label of two values and a named data set; it knows no process.
Files are read once. Only the id and label columns are renamed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hdpvfl_mq.app.demo.own_faults import as_numbers, faults, in_one_line, is_numeric, matching
from hdpvfl_mq.data.bundled import SplitDataset
from hdpvfl_mq.data.cards import Card
from hdpvfl_mq.data.csv_stream import PLAIN, Dialect
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table, concatenate
from hdpvfl_mq.errors import DataError, SettingsError
from schemas.config import IdRules
from schemas.ids import PARTY_PATTERN
from schemas.model import LossSpec

# All own files share one name, so a person in two of them has one budget at a party, not two.
OWN = "own-files"
OWN_FILES_LIFETIME_EPSILON = 10.0
ID, LABEL = "id", "y"
_WHOLE = r"^(0|[1-9][0-9]{0,17})$"
_BIT = r"^\s*[01](\.0*)?\s*$"


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
            f"{path}: a party is named after its file, and the name must start with a letter: "
            "rename the file"
        )
    return name


def load_own(files: OwnFiles) -> SplitDataset:
    """Read every file; DataError names every fault of all files with its remedy."""
    tables, wrong = [], []
    for path in (files.active, *files.passives):
        roles = {files.id_column: ID} | ({files.label: LABEL} if path == files.active else {})
        try:
            tables.append(_read(path, roles, files.dialect))
        except DataError as found:
            wrong.append(str(found))
    if wrong:
        raise DataError("; ".join(wrong))
    active, *passives = tables
    return own_dataset(_labelled(active, files), passives)


def own_dataset(active: Table, passives: Sequence[Table]) -> SplitDataset:
    """Tables of the parties as a data set; text columns become categories."""
    texts = {
        name
        for table in (active, *passives)
        for name in table.names
        if name not in (ID, LABEL) and not is_numeric(table, name)
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
    whole = all(matching(table, ID, _WHOLE).all() for table in tables)
    return IdRules(kind="integer" if whole else "text")


def _read(path: Path, renamed: dict[str, str], dialect: Dialect) -> Table:
    if not path.exists():
        raise SettingsError(f"there is no file {path}")
    try:
        source = TableFile(path, dialect=dialect)
        table = concatenate(list(source.chunks()))
    except DataError as wrong:
        text = str(wrong).removeprefix(f"{path.name}: ")
        raise DataError(f"{path}: {as_options(text + _hint(path, dialect))}") from None
    except SettingsError as wrong:
        raise SettingsError(as_options(str(wrong))) from None
    for column, name in renamed.items():
        if column not in table.names:
            names = ", ".join(table.names)
            hint = as_options(source.hint)
            raise DataError(f"{path} has no column {column!r}; it has {names}{hint}")
        if column != name and name in table.names:
            raise DataError(f"{path}: column {name!r} has a name that is used for {column!r} here")
    if len(table.names) <= len(renamed):
        raise DataError(f"{path} has no feature column")
    columns = [table.arrow(name) for name in table.names]
    if dialect.decimal == ",":
        columns = [as_numbers(column) for column in columns]
    found = faults(
        Table(table.names, columns), id_column=_of(renamed, ID), label=_of(renamed, LABEL)
    )
    if found:
        raise DataError(f"{path}: {in_one_line(found)}")
    return Table([renamed.get(name, name) for name in table.names], columns)


def _of(renamed: dict[str, str], role: str) -> str:
    """The user's column with this role; empty if the file has none."""
    return next((column for column, name in renamed.items() if name == role), "")


def _hint(path: Path, dialect: Dialect) -> str:
    """A likely cause of an unreadable file."""
    try:
        return TableFile(path, dialect=dialect).hint
    except DataError:  # it is in the header
        return ""


def as_options(text: str) -> str:
    """A remedy in the words of the command line, not of a settings file."""
    text = re.sub(
        r"looks like ('.+'): set data.separator", r"looks like \1: add --separator \1", text
    )
    text = text.replace(r"--separator '\t'", r"--separator $'\t'")  # as a shell writes a tab
    words = {
        "set data.encoding, such as 'latin-1'": "add --encoding, such as --encoding latin-1",
        "data.encoding": "--encoding",
    }
    for setting, option in words.items():
        text = text.replace(setting, option)
    return text


def _labelled(table: Table, files: OwnFiles) -> Table:
    """The table with its label mapped to 0 and 1."""
    label = table[LABEL]
    if files.positive is not None:
        marked = np.array([_same(cell, files.positive) for cell in label.tolist()])
        if not marked.any():
            raise SettingsError(f"--positive: no label of {files.active} has this value")
        values = marked.astype(np.int64)
    elif not is_numeric(table, LABEL):
        raise SettingsError(
            f"{files.active}: column {files.label!r} holds text; name the value that counts as 1: "
            "--positive VALUE"
        )
    elif not matching(table, LABEL, _BIT).all():
        raise SettingsError(
            f"{files.active}: column {files.label!r} has labels other than 0 and 1; name "
            "the value that counts as 1: --positive VALUE; counts and amounts need public bounds, "
            "see docs/data.md"
        )
    else:
        values = label.astype(np.float64).astype(np.int64)
    columns = [values if name == LABEL else table.arrow(name) for name in table.names]
    return Table(table.names, columns)


def _same(cell: object, wanted: str) -> bool:
    if isinstance(cell, float) and cell.is_integer():
        return wanted in (str(cell), str(int(cell)))
    return str(cell).strip() == wanted
