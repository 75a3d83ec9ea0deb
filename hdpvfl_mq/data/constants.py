"""The first pass over a source: find bad cells and fit the constants a party chose to learn.

It owns running means, spreads and category lists; it makes no matrix. What comes out is the same
settings with every "learn" replaced by a number or a list, which prepares later rows the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.data.columns import categories, complete_numbers, numbers, refuse
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError
from schemas.data import MAX_CATEGORIES, ColumnRule, DataSettings, NamedColumn
from schemas.ids import PartyRole

Source = Table | TableFile


@dataclass
class _Numeric:
    """Count, mean, squared deviations and range of a column so far (Chan's update)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    empty: int = 0

    def add(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        present = values[~np.isnan(values)]
        self.empty += len(values) - len(present)
        if present.size == 0:
            return
        mean, total = float(present.mean()), self.count + present.size
        shift = mean - self.mean
        self.squares += float(np.square(present - mean).sum())
        self.squares += shift * shift * self.count * present.size / total
        self.mean += shift * present.size / total
        self.count = total
        self.low = min(self.low, float(present.min()))
        self.high = max(self.high, float(present.max()))

    @property
    def spread(self) -> float:
        """Population standard deviation."""
        return float(np.sqrt(self.squares / max(1, self.count)))


@dataclass
class _Pass:
    rows: int = 0
    numeric: dict[str, _Numeric] = field(default_factory=dict)
    found: dict[str, set[str]] = field(default_factory=dict)


def resolve(
    source: Source, settings: DataSettings, role: PartyRole, *, allow_constant: bool = False
) -> tuple[DataSettings, int]:
    """Check every cell that will be used; return settled settings and the number of rows."""
    seen, names, rules = _Pass(), tuple[str, ...](), dict[str, NamedColumn]()
    for chunk in source.chunks():
        if not names:
            names = feature_names(chunk, settings, role)
            rules = {rule.name: rule for rule in settled_rules(names, settings)}
        for rule in rules.values():
            _scan(chunk, rule, seen)
        if settings.label_column and settings.label_classes is None:
            values = complete_numbers(chunk, settings.label_column)
            seen.numeric.setdefault(settings.label_column, _Numeric()).add(values)
        seen.rows += chunk.rows
    settled = tuple(_settle(rule, seen, allow_constant=allow_constant) for rule in rules.values())
    label = seen.numeric.get(settings.label_column or "", _Numeric())
    centre, scale = settings.label_centre, settings.label_scale
    return DataSettings(
        **{
            **dict(settings),
            "columns": names,
            "default": ColumnRule(),
            "rules": settled,
            "label_centre": label.mean if centre == "learn" else centre,
            "label_scale": _learned_scale("label", label) if scale == "learn" else scale,
            "learned": settings.learned or learns(settings, tuple(rules.values())),
        }
    ), seen.rows


def feature_names(table: Table, settings: DataSettings, role: PartyRole) -> tuple[str, ...]:
    """The columns that become features; a passive party's label column is refused."""
    special = (settings.label_column, settings.weight_column, settings.offset_column)
    if role == "passive" and any(special):
        names = ", ".join(repr(name) for name in special if name)
        raise DataError(f"a passive party has no label, weight or offset; take out {names}")
    others = {*settings.id_columns, *(name for name in special if name)}
    for name in (*sorted(others), *(settings.columns or ())):
        table[name]
    for rule in settings.rules:
        table[rule.name]
    if settings.columns is not None:
        return settings.columns
    names_left = tuple(name for name in table.names if name not in others)
    if not names_left:
        raise DataError("no feature column is left")
    return names_left


def settled_rules(names: tuple[str, ...], settings: DataSettings) -> tuple[NamedColumn, ...]:
    """One rule for each feature column, its own or the default."""
    own = {rule.name: rule for rule in settings.rules}
    default = dict(settings.default)
    return tuple(own.get(name) or NamedColumn(name=name, **default) for name in names)


def learns(settings: DataSettings, rules: tuple[ColumnRule, ...]) -> bool:
    """Whether any constant is to be fitted to the rows."""
    chosen = [settings.label_centre, settings.label_scale]
    for rule in rules:
        chosen += [rule.centre, rule.scale]
        if rule.missing == "learn" or rule.categories == "learn":
            return True
    return "learn" in chosen


def _scan(chunk: Table, rule: NamedColumn, seen: _Pass) -> None:
    if rule.categories is None:
        values = numbers(chunk, rule.name)
        if rule.missing == "error":
            refuse(chunk, rule.name, np.isnan(values), "the cell is empty or not a number")
        seen.numeric.setdefault(rule.name, _Numeric()).add(values)
        return
    cells = categories(chunk, rule.name)
    if rule.missing_category is None:
        refuse(chunk, rule.name, cells == "", "the cell is empty")
    found = seen.found.setdefault(rule.name, set())
    found.update(cell for cell in set(cells.tolist()) if cell)
    if rule.categories != "learn" and rule.unknown == "error":
        known = np.isin(cells, np.array(["", *rule.categories], dtype=cells.dtype))
        refuse(chunk, rule.name, ~known, "the category is not in the declared list")
    if len(found) > MAX_CATEGORIES:
        raise DataError(f"column {rule.name!r} has more than {MAX_CATEGORIES} categories")


def _settle(rule: NamedColumn, seen: _Pass, *, allow_constant: bool) -> NamedColumn:
    if rule.categories is not None:
        return _settle_categories(rule, seen.found[rule.name])
    numeric = seen.numeric[rule.name]
    filled = numeric.empty > 0 and isinstance(rule.missing, float)
    if not (numeric.low < numeric.high or filled or allow_constant):
        raise DataError(f"column {rule.name!r} is constant; leave it out")
    scale = _learned_scale(rule.name, numeric) if rule.scale == "learn" else rule.scale
    return NamedColumn(
        **{
            **dict(rule),
            "missing": numeric.mean if rule.missing == "learn" else rule.missing,
            "centre": numeric.mean if rule.centre == "learn" else rule.centre,
            "scale": scale,
        }
    )


def _settle_categories(rule: NamedColumn, found: set[str]) -> NamedColumn:
    if rule.categories != "learn":
        return rule
    if rule.missing_category is not None:
        found = found | {rule.missing_category}
    if len(found) < 2:
        raise DataError(f"column {rule.name!r} is constant; leave it out")
    return NamedColumn(**{**dict(rule), "categories": tuple(sorted(found))})


def _learned_scale(name: str, numeric: _Numeric) -> float:
    if not numeric.spread > 0.0:
        raise DataError(f"column {name!r} is constant; its scale cannot be learned")
    return numeric.spread
