"""The second pass: a source and its settings become ids, a matrix, labels, weights, offsets.

It owns one-hot columns, filling, centring and scaling by fixed constants; it knows no loss and
scales no rows (that happens after alignment). Everything stays inside the party.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.data.columns import Words
from hdpvfl_mq.data.constants import resolve
from hdpvfl_mq.data.decoding import parsed_chunks
from hdpvfl_mq.data.fingerprint import Fingerprint, OtherColumns
from hdpvfl_mq.data.parsed import Parsed, Reading, Source, reading
from hdpvfl_mq.data.tables import Column, refuse
from hdpvfl_mq.engine.port import LOCAL, Engine, Matrix
from schemas.data import DataSettings, NamedColumn
from schemas.ids import PartyRole
from schemas.model import LabelKind

# Called with the id columns of each chunk.
TakeIds = Callable[[tuple[Column, ...]], None]

# float32 ends at 3.4e38.
SCALED_LIMIT = 1e30
TOO_LARGE = "the cell is too large for its scale"


@dataclass(frozen=True, repr=False)
class PreparedData:
    """A party's rows, checked and numeric, in the order of its file.

    `settings` has every learned constant filled in: with it, later rows are prepared the same way.
    `ids` is empty if a `take_ids` callback received them.
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
    source: Source,
    settings: DataSettings,
    *,
    role: PartyRole,
    to_score: bool = False,
    engine: Engine = LOCAL,
) -> PreparedData:
    """Prepare in memory, as float64. Rows to score may have a constant column.

    The source is read once; its chunks are freed as the matrix fills.
    """
    how = reading(source, settings, role)
    held = list(parsed_chunks(how, source, engine))
    settled, rows = resolve(held, how, allow_constant=to_score)
    parts: list[tuple[Column, ...]] = []
    X = np.empty((rows, len(output_names(settled))))
    prepared = _encode_all(_taken(held), settled, X, np.empty, parts.append)
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
    engine: Engine = LOCAL,
) -> PreparedData:
    """Prepare chunk by chunk, as float32, into allocated arrays; `take_ids` gets the ids.

    The source is read twice, because its rows do not fit into memory.
    """
    how = reading(source, settings, role)
    settled, rows = resolve(parsed_chunks(how, source, engine), how, allow_constant=to_score)
    X = allocate((rows, len(output_names(settled))), np.float32)
    again = parsed_chunks(Reading(settled, settled.rules, settled.id_columns), source, engine)
    prepared = _encode_all(again, settled, X, allocate, take_ids)
    for array in (prepared.X, prepared.y, prepared.weights, prepared.offset):
        if array is not None:
            array.flags.writeable = False
    return prepared


def output_names(settled: DataSettings) -> tuple[str, ...]:
    """The columns of the matrix: one per numeric column, one per category of other columns."""
    names: list[str] = []
    for rule in settled.rules:
        if rule.categories is None:
            names.append(rule.name)
        else:
            names += [f"{rule.name}={category}" for category in rule.categories]
    return tuple(names)


def _taken(held: list[Parsed]) -> Iterator[Parsed]:
    held.reverse()
    while held:
        yield held.pop()


def _encode_all(
    chunks: Iterable[Parsed],
    settled: DataSettings,
    X: Matrix,
    allocate: Allocate,
    take_ids: TakeIds,
) -> PreparedData:
    names, start = output_names(settled), 0
    fingerprint = Fingerprint(names)
    columns = (settled.label_column, settled.weight_column, settled.offset_column)
    y, weights, offset = (allocate((len(X),), np.float64) if column else None for column in columns)
    for chunk in chunks:
        rows = slice(start, start + chunk.rows)
        block = _block(X, rows, chunk.rows)
        _encode(chunk, settled, block)
        others = OtherColumns(chunk.ids, _label(chunk, settled), chunk.weights, chunk.offset)
        fingerprint.add(block, others)
        if X.dtype != np.float64:
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


def _block(X: Matrix, rows: slice, count: int) -> NDArray[np.float64]:
    """A float64 block to compute these rows in: part of the matrix itself if it is float64."""
    part: NDArray[Any] = X[rows]
    return part if part.dtype == np.float64 else np.empty((count, X.shape[1]))


def _put(
    array: NDArray[np.float64] | None, rows: slice, values: NDArray[np.float64] | None
) -> None:
    if array is not None and values is not None:
        array[rows] = values


# By kind of labels: a test for invalid labels, and what labels must be.
_OUTSIDE: Mapping[LabelKind, tuple[Callable[[NDArray[np.float64]], NDArray[np.bool_]], str]] = {
    "binary": (lambda y: ~np.isin(y, (-1.0, 0.0, 1.0)), "must be 0 or 1 (or -1 and 1)"),
    "count": (lambda y: (y < 0.0) | (y != np.floor(y)), "must be a whole number, not below 0"),
    "positive": (lambda y: y <= 0.0, "must lie above 0"),
    "real": (lambda y: np.zeros(y.shape, dtype=np.bool_), ""),
}


def _label(chunk: Parsed, settings: DataSettings) -> NDArray[np.float64] | None:
    if chunk.label is None or settings.label_classes is not None:
        return chunk.label
    name, constants = settings.label_column, (settings.label_centre, settings.label_scale)
    assert name is not None
    assert constants[0] != "learn"
    assert constants[1] != "learn"
    with np.errstate(over="ignore"):
        y = (chunk.label - constants[0]) / constants[1]
    refuse(chunk.first_row, name, np.abs(y) > SCALED_LIMIT, TOO_LARGE)
    outside, words = _OUTSIDE[settings.declared_kind]
    reason = f"the label {words}, or declare another data.label_kind"
    refuse(chunk.first_row, name, outside(y), reason)
    return y


def _of_this_run(
    y: NDArray[np.float64] | None, settings: DataSettings
) -> NDArray[np.float64] | None:
    """One class against the rest. The fingerprint covers the classes: the rows are the same."""
    if y is None or settings.label_positive is None:
        return y
    assert settings.label_classes is not None
    return np.where(y == settings.label_classes.index(settings.label_positive), 1.0, 0.0)


def _encode(chunk: Parsed, settled: DataSettings, block: NDArray[np.float64]) -> None:
    """Fill a block with the output columns of all raw columns."""
    numeric = [rule for rule in settled.rules if rule.categories is None]
    values, place = _standardised(chunk, numeric), 0
    if len(numeric) == len(settled.rules):
        block[:] = values.T
        return
    rows = iter(values)
    for rule in settled.rules:
        if rule.categories is None:
            block[:, place] = next(rows)
            place += 1
        else:
            width = len(rule.categories)
            block[:, place : place + width] = _one_hot(chunk.words[rule.name], rule)
            place += width


def _one_hot(cells: Words, rule: NamedColumn) -> NDArray[np.bool_]:
    assert isinstance(rule.categories, tuple)
    place = {category: position for position, category in enumerate(rule.categories)}
    if rule.missing_category is not None:
        place[""] = place.get(rule.missing_category, -1)
    places = np.array([place.get(word, -1) for word in cells.words], dtype=np.int64)
    one_hot: NDArray[np.bool_] = places[cells.codes][:, None] == np.arange(len(rule.categories))
    return one_hot


def _standardised(chunk: Parsed, rules: list[NamedColumn]) -> NDArray[np.float64]:
    """(x - centre) / scale after filling empty cells; a row of the result is a column.

    It is computed in place: allocating pages for every chunk takes longer than the arithmetic.
    """
    values, filled = chunk.numbers, np.isnan(chunk.moments.low)
    for place in np.flatnonzero(filled):
        missing = rules[place].missing
        if isinstance(missing, float):
            values[place][np.isnan(values[place])] = missing
    centre = np.array([rule.centre for rule in rules], dtype=np.float64)
    scale = np.array([rule.scale for rule in rules], dtype=np.float64)
    with np.errstate(over="ignore"):
        np.divide(np.subtract(values, centre[:, None], out=values), scale[:, None], out=values)
        # Scaling keeps the order of numbers, so it is enough to check both ends.
        ends = [(end - centre) / scale for end in (chunk.moments.low, chunk.moments.high)]
    suspects = filled | ~(np.maximum(np.abs(ends[0]), np.abs(ends[1])) <= SCALED_LIMIT)
    for place in np.flatnonzero(suspects):
        too_large = np.abs(values[place]) > SCALED_LIMIT
        refuse(chunk.first_row, rules[place].name, too_large, TOO_LARGE)
    return values
