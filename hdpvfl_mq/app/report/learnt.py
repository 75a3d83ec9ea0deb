"""Which preprocessing constants a party fitted to its rows, from its own settings.

It owns the words; constants.py in hdpvfl_mq/data fits them.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.data import DataSettings

_NAMES = {
    "categories": "categories",
    "missing": "value for empty cells",
    "centre": "centre",
    "scale": "scale",
}


def learnt(settings: DataSettings, columns: Iterable[str]) -> tuple[str, ...]:
    """One text for each kind of constant that the settings leave to the rows, with its columns."""
    own = {rule.name: rule for rule in settings.rules}
    kinds: dict[tuple[str, ...], list[str]] = {}  # by the columns they share
    for field, name in _NAMES.items():
        fitted = tuple(
            column
            for column in columns
            if getattr(own.get(column, settings.default), field) == "learn"
        )
        if fitted:
            kinds.setdefault(fitted, []).append(name)
    found = [f"{' and '.join(names)} of {', '.join(each)}" for each, names in kinds.items()]
    if "learn" in (settings.label_centre, settings.label_scale):
        found.append("centre or scale of the label")
    return tuple(found)
