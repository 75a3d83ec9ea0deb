"""Which party holds which column, and the constants that standardise each column.

It owns how a matrix is split and standardised; it knows no party's role and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Names = Sequence[Any] | None  # the columns' names, if the data have names


def as_frames(X: Any) -> tuple[Any, ...] | None:
    """The frames, if `X` is a list with one frame for each party; None for a single matrix."""
    if not isinstance(X, list | tuple) or len(X) < 2:
        return None
    frames = tuple(map(_with_names, X))
    return frames if all(np.ndim(frame) == 2 for frame in frames) else None


def _with_names(X: Any) -> Any:
    """Anything with Arrow's interface as a table, of which scikit-learn finds the names.

    A DataFrame of pandas has names already, and a frame in a list needs none.
    """
    is_batch = hasattr(X, "__arrow_c_array__") and hasattr(X, "schema")
    if hasattr(X, "iloc") or not (is_batch or hasattr(X, "__arrow_c_stream__")):
        return X
    import pyarrow as pa  # noqa: PLC0415 - matrices of numpy and pandas need none of it

    return pa.table(X)


def joined(X: Any) -> tuple[Any, list[list[int]] | None]:
    """One matrix, and the columns of each party if `X` is a list of frames."""
    frames = as_frames(X)
    if frames is None:
        return _with_names(X), None
    arrays = [np.asarray(frame, dtype=np.float64) for frame in frames]
    if len({len(array) for array in arrays}) != 1:
        raise ValueError("every party's frame needs the same rows, in the same order")
    ends = np.cumsum([array.shape[1] for array in arrays]).tolist()
    parties = [
        list(range(end - array.shape[1], end)) for end, array in zip(ends, arrays, strict=True)
    ]
    return np.hstack(arrays), parties


def dealt(columns: Sequence[Sequence[Any]] | None, count: int, names: Names) -> list[list[int]]:
    """The positions of every party's columns, the active party's first.

    None gives the first half of the columns to the active party and the rest to one passive party.
    """
    if columns is None:
        half = (count + 1) // 2
        columns = [list(range(half)), list(range(half, count))]
    if isinstance(columns, str) or any(isinstance(party, str) for party in columns):
        raise ValueError("columns: give a list for each party, such as [['age'], ['basket']]")
    if len(columns) < 2:
        raise ValueError(
            "columns: list those of the active party, then those of one or more passive parties"
        )
    parties = [[_position(column, count, names) for column in party] for party in columns]
    places = [place for party in parties for place in party]
    if len(set(places)) != len(places):
        raise ValueError("columns: one column is listed twice")
    if not all(parties):
        raise ValueError(
            f"columns: every party needs at least one; n_features = {count} "
            f"for {len(parties)} parties"
        )
    return parties


def _position(column: Any, count: int, names: Names) -> int:
    if isinstance(column, str):
        if names is None or column not in list(names):
            raise ValueError(f"columns: there is no column named {column!r}")
        return list(names).index(column)
    if not 0 <= int(column) < count:
        raise ValueError(f"columns: position {column} is outside the {count} columns")
    return int(column)


@dataclass(frozen=True)
class Standardised:
    """Constants that standardise one party's columns: x becomes (x - centre) / scale."""

    columns: tuple[int, ...]
    centre: Matrix = field(repr=False)
    scale: Matrix = field(repr=False)

    @classmethod
    def fitted(cls, X: Matrix, columns: Sequence[int]) -> Standardised:
        """Mean and deviation of these columns; a constant column stays unchanged."""
        own = X[:, list(columns)]
        with np.errstate(over="ignore", invalid="ignore"):
            centre, scale = own.mean(axis=0), own.std(axis=0)
        usable = np.isfinite(centre) & np.isfinite(scale) & (scale > 0.0)
        return cls(tuple(columns), np.where(usable, centre, 0.0), np.where(usable, scale, 1.0))

    def apply(self, X: Matrix) -> Matrix:
        """This party's columns of a matrix, standardised."""
        own = np.asarray(X[:, list(self.columns)], dtype=np.float64)
        standard: Matrix = (own - self.centre) / self.scale
        return standard
