"""The second pass: a source and its settings become ids, a matrix, labels, weights, offsets.

It owns one-hot columns, filling, centring and scaling by settled constants; it knows no loss and
scales no rows (that follows alignment). Everything stays inside the party.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.data.columns import categories, complete_numbers, ids, numbers, refuse
from hdpvfl_mq.data.constants import Source, resolve
from hdpvfl_mq.data.fingerprint import Fingerprint, OtherColumns
from hdpvfl_mq.data.tables import Column, Table
from schemas.data import DataSettings, NamedColumn
from schemas.ids import PartyRole
from schemas.model import LabelKind

Matrix = NDArray[np.float64] | NDArray[np.float32]
# Is given the id columns of one chunk after the other.
TakeIds = Callable[[tuple[Column, ...]], None]

# float32 ends at 3.4e38.
SCALED_LIMIT = 1e30


@dataclass(frozen=True, repr=False)
class PreparedData:
    """A party's rows, checked and numeric, in the order of its file.

    `settings` has every learned constant filled in: with it, later rows are prepared the same way.
    There are no `ids` where somebody else took them.
    """

    ids: tuple[Column, ...]
    X: Matrix
    y: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    offset: NDArray[np.float64] | None
    column_names: tuple[str, ...]
    settings: DataSettings
    fingerprint: bytes

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def conditional_on_preprocessing(self) -> bool:
        """Whether constants were fitted to the private rows."""
        return self.settings.learned

    def __repr__(self) -> str:
        return f"<PreparedData of {self.rows} rows and {len(self.column_names)} columns>"


def prepare(
    source: Source, settings: DataSettings, *, role: PartyRole, to_score: bool = False
) -> PreparedData:
    """Prepare in memory, as float64. Rows to score may have a constant column."""
    settled, rows = resolve(source, settings, role, allow_constant=to_score)
    parts: list[tuple[Column, ...]] = []
    X = np.empty((rows, len(output_names(settled))))
    prepared = _encode_all(source, settled, X, np.empty, parts.append)
    ids = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return replace(prepared, ids=ids)


def prepare_mapped(
    source: Source,
    settings: DataSettings,
    allocate: Allocate,
    take_ids: TakeIds,
    *,
    role: PartyRole,
    to_score: bool = False,
) -> PreparedData:
    """Prepare chunk by chunk, as float32, into allocated arrays; `take_ids` gets the ids."""
    settled, rows = resolve(source, settings, role, allow_constant=to_score)
    X = allocate((rows, len(output_names(settled))), np.float32)
    prepared = _encode_all(source, settled, X, allocate, take_ids)
    for array in (prepared.X, prepared.y, prepared.weights, prepared.offset):
        if array is not None:
            array.flags.writeable = False
    return prepared


def output_names(settled: DataSettings) -> tuple[str, ...]:
    """The columns of the matrix: one for a numeric column, one for each category of another."""
    names: list[str] = []
    for rule in settled.rules:
        if rule.categories is None:
            names.append(rule.name)
        else:
            names += [f"{rule.name}={category}" for category in rule.categories]
    return tuple(names)


def _encode_all(
    source: Source, settled: DataSettings, X: Matrix, allocate: Allocate, take_ids: TakeIds
) -> PreparedData:
    names, start = output_names(settled), 0
    fingerprint = Fingerprint(names)
    columns = (settled.label_column, settled.weight_column, settled.offset_column)
    y, weights, offset = (allocate((len(X),), np.float64) if column else None for column in columns)
    for chunk in source.chunks():
        block = np.hstack([_encode(chunk, rule) for rule in settled.rules])
        others = _other_columns(chunk, settled)
        fingerprint.add(block, others)
        rows = slice(start, start + chunk.rows)
        X[rows] = block
        _put(y, rows, _of_this_run(others.y, settled))
        _put(weights, rows, others.weights)
        _put(offset, rows, others.offset)
        take_ids(others.ids)
        start += chunk.rows
    return PreparedData(
        ids=(),
        X=X,
        y=y,
        weights=weights,
        offset=offset,
        column_names=names,
        settings=settled,
        fingerprint=fingerprint.digest(),
    )


def _put(
    array: NDArray[np.float64] | None, rows: slice, values: NDArray[np.float64] | None
) -> None:
    if array is not None and values is not None:
        array[rows] = values


def _other_columns(chunk: Table, settings: DataSettings) -> OtherColumns:
    weight, offset = settings.weight_column, settings.offset_column
    return OtherColumns(
        ids=tuple(
            ids(chunk, name, keep_empty=settings.empty_ids == "keep")
            for name in settings.id_columns
        ),
        y=_label(chunk, settings),
        weights=None if weight is None else _weights(chunk, weight),
        offset=None if offset is None else complete_numbers(chunk, offset),
    )


def _weights(chunk: Table, name: str) -> NDArray[np.float64]:
    weights = complete_numbers(chunk, name)
    refuse(chunk, name, weights < 0.0, "the sample weight is negative")
    return weights


# What labels of a kind are not, and what they must be.
_OUTSIDE: Mapping[LabelKind, tuple[Callable[[NDArray[np.float64]], NDArray[np.bool_]], str]] = {
    "binary": (lambda y: ~np.isin(y, (-1.0, 0.0, 1.0)), "must be 0 or 1 (or -1 and 1)"),
    "count": (lambda y: (y < 0.0) | (y != np.floor(y)), "must be a whole number, not below 0"),
    "positive": (lambda y: y <= 0.0, "must lie above 0"),
    "real": (lambda y: np.zeros(y.shape, dtype=np.bool_), ""),
}


def _label(chunk: Table, settings: DataSettings) -> NDArray[np.float64] | None:
    name, classes = settings.label_column, settings.label_classes
    if name is None:
        return None
    if classes is None:
        centre, scale = settings.label_centre, settings.label_scale
        assert centre != "learn"
        assert scale != "learn"
        y = _standardised(chunk, name, complete_numbers(chunk, name), (centre, scale))
        outside, words = _OUTSIDE[settings.declared_kind]
        refuse(chunk, name, outside(y), f"the label {words}, or declare another data.label_kind")
        return y
    cells = categories(chunk, name)
    index = {label: float(position) for position, label in enumerate(classes)}
    codes = np.array([index.get(cell, np.nan) for cell in cells.tolist()])
    refuse(chunk, name, np.isnan(codes), "the label is not in the declared list of classes")
    return codes


def _of_this_run(
    y: NDArray[np.float64] | None, settings: DataSettings
) -> NDArray[np.float64] | None:
    """One class against the rest. The fingerprint is that of the classes: the rows are the same."""
    if y is None or settings.label_positive is None:
        return y
    assert settings.label_classes is not None
    return np.where(y == settings.label_classes.index(settings.label_positive), 1.0, 0.0)


def _encode(chunk: Table, rule: NamedColumn) -> NDArray[np.float64]:
    """One raw column as its output columns."""
    if rule.categories is not None:
        cells = categories(chunk, rule.name)
        if rule.missing_category is not None:
            cells = np.where(cells == "", rule.missing_category, cells)
        return np.column_stack([cells == category for category in rule.categories]).astype(
            np.float64
        )
    values = numbers(chunk, rule.name)
    assert rule.centre != "learn"
    assert rule.scale != "learn"
    if isinstance(rule.missing, float):
        values = np.where(np.isnan(values), rule.missing, values)
    values = _standardised(chunk, rule.name, values, (rule.centre, rule.scale))
    return values[:, None]


def _standardised(
    chunk: Table, name: str, values: NDArray[np.float64], constants: tuple[float, float]
) -> NDArray[np.float64]:
    centre, scale = constants
    with np.errstate(over="ignore"):
        values = (values - centre) / scale
    refuse(chunk, name, np.abs(values) > SCALED_LIMIT, "the cell is too large for its scale")
    return values
