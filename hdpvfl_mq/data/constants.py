"""The first pass over a source: fit the constants a party chose to learn.

It owns which constants are learned and category lists; it makes no matrix. The result is the same
settings with every "learn" replaced by a number or a list, which prepares later rows the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from hdpvfl_mq.data.moments import Fitted, Moments, moments_of
from hdpvfl_mq.data.parsed import Parsed, Reading, learns
from hdpvfl_mq.errors import DataError
from schemas.data import MAX_CATEGORIES, ColumnRule, DataSettings, NamedColumn


def resolve(
    chunks: Iterable[Parsed], how: Reading, *, allow_constant: bool = False
) -> tuple[DataSettings, int]:
    """Read all rows; return the settings with learned constants and the number of rows."""
    moments, label = Moments(len(how.numeric)), Moments(1)
    found: dict[str, set[str]] = {rule.name: set() for rule in how.words}
    settings, rows = how.settings, 0
    for chunk in chunks:
        moments.add(chunk.moments)
        if chunk.label is not None:
            y = chunk.label[None, :]
            label.add(moments_of(y, y.min(axis=1), y.max(axis=1), learning=(0,)))
        for rule in how.words:
            found[rule.name].update(word for word in chunk.words[rule.name].words if word)
            if len(found[rule.name]) > MAX_CATEGORIES:
                raise DataError(f"column {rule.name!r} has more than {MAX_CATEGORIES} categories")
        rows += chunk.rows
    numeric = {rule.name: moments.of(place) for place, rule in enumerate(how.numeric)}
    settled = tuple(
        _settle(rule, numeric[rule.name], allow_constant=allow_constant)
        if rule.categories is None
        else _settle_categories(rule, found[rule.name])
        for rule in how.rules
    )
    centre, scale = settings.label_centre, settings.label_scale
    return DataSettings(
        **{
            **dict(settings),
            "columns": tuple(rule.name for rule in how.rules),
            "default": ColumnRule(),
            "rules": settled,
            "label_centre": label.of(0).mean if centre == "learn" else centre,
            "label_scale": _learned_scale("label", label.of(0)) if scale == "learn" else scale,
            "learned": settings.learned
            or "learn" in (centre, scale)
            or any(map(learns, how.rules)),
        }
    ), rows


def _settle(rule: NamedColumn, fitted: Fitted, *, allow_constant: bool) -> NamedColumn:
    filled = fitted.empties > 0 and isinstance(rule.missing, float)
    # If every constant is declared, no row may decide whether this party takes part.
    is_kept = filled or allow_constant or not learns(rule)
    if fitted.is_constant and not is_kept:
        raise DataError(f"column {rule.name!r} is constant; leave it out")
    return NamedColumn(
        **{
            **dict(rule),
            "missing": fitted.mean if rule.missing == "learn" else rule.missing,
            "centre": fitted.mean if rule.centre == "learn" else rule.centre,
            "scale": _learned_scale(rule.name, fitted) if rule.scale == "learn" else rule.scale,
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


def _learned_scale(name: str, fitted: Fitted) -> float:
    if not fitted.spread > 0.0:
        raise DataError(f"column {name!r} is constant; its scale cannot be learned")
    return fitted.spread
