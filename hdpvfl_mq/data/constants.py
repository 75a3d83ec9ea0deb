"""The first pass over a source: fit the constants a party chose to learn.

It owns running means, spreads and category lists; it makes no matrix. The result is the same
settings with every "learn" replaced by a number or a list, which prepares later rows the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.parsed import Parsed, Reading
from hdpvfl_mq.errors import DataError
from schemas.data import MAX_CATEGORIES, ColumnRule, DataSettings, NamedColumn


class _Moments:
    """Count, mean, squared deviations and range of several columns so far (Chan's update).

    Means and deviations are kept only for columns that learn them.
    """

    def __init__(self, learns: Sequence[bool]) -> None:
        columns = len(learns)
        self._learning = np.flatnonzero(learns)
        self.count = np.zeros(columns, dtype=np.int64)
        self.mean, self.squares = np.zeros(columns), np.zeros(columns)
        self.low, self.high = np.full(columns, np.inf), np.full(columns, -np.inf)
        self.empty = np.zeros(columns, dtype=np.int64)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add the next rows: a row of the matrix is a column of the source, NaN an empty cell."""
        self.add_range(values, values.min(axis=1), values.max(axis=1))

    def add_range(
        self, values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> None:
        """Like `add`, with the smallest and largest number of each column known."""
        self.low, self.high = np.fmin(self.low, low), np.fmax(self.high, high)
        for column in np.flatnonzero(np.isnan(low)).tolist():
            present = values[column][~np.isnan(values[column])]
            self.empty[column] += values.shape[1] - present.size
            if present.size:
                self.low[column] = min(self.low[column], present.min())
                self.high[column] = max(self.high[column], present.max())
        for column in self._learning.tolist():
            present = values[column]
            if np.isnan(low[column]):
                present = present[~np.isnan(present)]
            if present.size:
                self._add(column, present)

    def _add(self, column: int, present: NDArray[np.float64]) -> None:
        mean, count = present.mean(), int(self.count[column])
        total, shift = count + present.size, mean - self.mean[column]
        self.squares[column] += np.square(present - mean).sum()
        self.squares[column] += shift * shift * count * present.size / total
        self.mean[column] += shift * present.size / total
        self.count[column] = total

    def of(self, column: int) -> _Fitted:
        """The fitted constants of one column."""
        spread = float(np.sqrt(self.squares[column] / max(1, int(self.count[column]))))
        is_constant = not self.low[column] < self.high[column]
        return _Fitted(
            float(self.mean[column]), spread, is_constant, empties=int(self.empty[column])
        )


@dataclass(frozen=True)
class _Fitted:
    """Mean, population standard deviation, and how many cells were empty."""

    mean: float
    spread: float
    is_constant: bool
    empties: int


def resolve(
    chunks: Iterable[Parsed], how: Reading, *, allow_constant: bool = False
) -> tuple[DataSettings, int]:
    """Read all rows; return the settings with learned constants and the number of rows."""
    moments, label = _Moments([_learns(rule) for rule in how.numeric]), _Moments([True])
    found: dict[str, set[str]] = {rule.name: set() for rule in how.words}
    settings, rows = how.settings, 0
    for chunk in chunks:
        moments.add_range(chunk.numbers, chunk.low, chunk.high)
        if chunk.label is not None:
            label.add(chunk.label[None, :])
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
            or any(map(_learns, how.rules)),
        }
    ), rows


def _learns(rule: ColumnRule) -> bool:
    """Whether a constant of this rule is fitted to the rows."""
    return "learn" in (rule.centre, rule.scale, rule.missing, rule.categories)


def _settle(rule: NamedColumn, fitted: _Fitted, *, allow_constant: bool) -> NamedColumn:
    filled = fitted.empties > 0 and isinstance(rule.missing, float)
    # If every constant is declared, no row may decide whether this party takes part.
    is_kept = filled or allow_constant or not _learns(rule)
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


def _learned_scale(name: str, fitted: _Fitted) -> float:
    if not fitted.spread > 0.0:
        raise DataError(f"column {name!r} is constant; its scale cannot be learned")
    return fitted.spread
