"""The example data sets, by name.

It owns the order of places to look (a folder, an installed package, the public source); it knows
no format and reads no environment variable. A folder holds NAME_active.csv and NAME_passive.csv,
either with .gz.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hdpvfl_mq.data.cards import CARDS, Card
from hdpvfl_mq.data.fetch import fetch_pair
from hdpvfl_mq.data.packaged import PACKAGED, Pair
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.data.splits import deal, overlapping
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import SettingsError
from schemas.data import ColumnRule, DataSettings, NamedColumn
from schemas.model import LabelKind

OVERLAP = "_overlap"


@dataclass(frozen=True)
class SplitDataset:
    """A data set split in two: active has id, y and features, passive has id and features.

    `positive` is the class that a run predicts if there are more than two. `given` holds the
    passive parties' tables if the data set already has one for each.
    """

    name: str
    card: Card
    active: Table
    passive: Table
    positive: str | None = None
    given: tuple[Table, ...] = ()

    def parts(self, passives: int) -> tuple[Table, ...]:
        """One table for each passive party."""
        return self.given or deal(self.passive, passives)

    def settings(self, table: Table, kind: LabelKind) -> DataSettings:
        """Settings for the active table or any part of the passive table, for labels of a kind.

        Centres, scales and categories are learned, so results are conditional on them; the
        constants of the label are public.
        """
        has_label = "y" in table.names
        real = has_label and kind == "real"
        return DataSettings(
            label_column="y" if has_label else None,
            label_kind=kind if has_label else None,
            label_classes=self.card.classes or None if has_label else None,
            label_positive=self.positive if has_label else None,
            label_centre=self.card.middle if real else 0.0,
            label_scale=(self.card.spread if real else self.card.unit) if has_label else 1.0,
            default=ColumnRule(centre="learn", scale="learn"),
            rules=tuple(
                NamedColumn(name=name, categories="learn", unknown="zero")
                for name in self.card.categorical
                if name in table.names
            ),
        )


def load_dataset(
    name: str, *, folder: Path | None = None, cache: Path | None = None
) -> SplitDataset:
    """Load a data set by name; with the suffix `_overlap` each side lacks one row in eleven."""
    base = name.removesuffix(OVERLAP)
    card = CARDS.get(base)
    if card is None:
        raise SettingsError(f"there is no data set {name!r}; known are {', '.join(CARDS)}")
    if folder is not None and (files := _files(folder, name)):
        return SplitDataset(name, card, load_table(files[0]), load_table(files[1]))
    active, passive = _whole(base, card, folder, cache)
    if base != name:
        active, passive = overlapping(active, passive)
    return SplitDataset(name, card, active, passive)


def describe(folder: Path | None = None) -> tuple[dict[str, str | int], ...]:
    """One row for each data set, with the place it would be loaded from."""
    return tuple(
        {
            "name": name,
            "task": card.task,
            "loss": card.loss.name,
            "rows": card.rows,
            "active_columns": card.columns[0],
            "passive_columns": card.columns[1],
            "place": _place(name, folder),
            "origin": card.origin,
            "licence": card.licence,
        }
        for name, card in CARDS.items()
    )


def _place(name: str, folder: Path | None) -> str:
    if folder is not None and _files(folder, name):
        return "folder"
    return "package" if name in PACKAGED else "download"


def _whole(base: str, card: Card, folder: Path | None, cache: Path | None) -> Pair:
    if folder is not None and (files := _files(folder, base)):
        return load_table(files[0]), load_table(files[1])
    if base in PACKAGED:
        return PACKAGED[base]()
    assert card.public is not None
    return fetch_pair(base, card.public, cache)


def _files(folder: Path, name: str) -> tuple[Path, Path] | None:
    found = []
    for side in ("active", "passive"):
        for suffix in (".csv", ".csv.gz"):
            if (file := folder / f"{name}_{side}{suffix}").is_file():
                found.append(file)
                break
    return (found[0], found[1]) if len(found) == 2 else None
