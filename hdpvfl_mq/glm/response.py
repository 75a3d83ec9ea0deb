"""The active party's labels, sample weights and offsets, and the residual they give.

It owns what a row brings besides its columns; it knows no columns, no files and no noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Room, chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.glm.families.base import Family, refuse_rows


class Response:
    """Labels of the common rows under one family.

    *Bound*: a residual is at most family.residual_bound, sample weights included; weights are
    clipped to [0, weight_max] and offsets to +- offset_max, both declared.
    """

    def __init__(
        self,
        family: Family,
        y: FloatVector,
        *,
        weights: FloatVector | None = None,
        offset: FloatVector | None = None,
        order: NDArray[np.int64] | None = None,
        room: Room = np.empty,
    ) -> None:
        """`order` names the rows to take, all as they are if it is None; `room` is for copies."""
        check_sides(family, y, weights=weights, offset=offset)
        weight_max, offset_max = family.spec.weight_max, family.spec.offset_max
        self.family = family
        copied = partial(_copied, order=order, room=room)
        self._y = copied(y, family.coded)
        self._weights = self._offset = None
        if weights is not None:
            self._weights = copied(weights, lambda part: np.minimum(part, weight_max))
        if offset is not None:
            self._offset = copied(offset, lambda part: np.clip(part, -offset_max, offset_max))

    @property
    def rows(self) -> int:
        """Common rows."""
        return len(self._y)

    def residual(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """h of the batch: theta is the party's own scores, what it received, and the offset."""
        return self._each(self.family.residual, rows, own, received)

    def curvature(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """The derivative of `residual` by theta, row by row; at most the smoothness."""
        return self._each(self.family.curvature, rows, own, received)

    def loss(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """Weighted losses of the batch, before clipping. Never leaves the party."""
        return self._each(self.family.loss, rows, own, received)

    def _each(
        self,
        formula: Callable[[FloatVector, FloatVector], FloatVector],
        rows: slice,
        own: Unreleased,
        received: FloatVector | float,
    ) -> Unreleased:
        """A formula of theta and label, weighted; a chunk at a time, since a batch may be all."""
        scores = own.expose()
        found = np.empty(len(scores))
        for part in chunks(len(scores)):
            here = slice(rows.start + part.start, rows.start + part.stop)
            theta = scores[part] + (received if isinstance(received, float) else received[part])
            if self._offset is not None:
                theta = theta + self._offset[here]
            values = formula(theta, self._y[here])
            found[part] = values if self._weights is None else values * self._weights[here]
        return Unreleased(found)

    def __repr__(self) -> str:
        return f"<Response of {self.rows} rows, {self.family.name}>"


def check_sides(
    family: Family,
    y: FloatVector,
    *,
    weights: FloatVector | None = None,
    offset: FloatVector | None = None,
) -> None:
    """Refuse labels, weights or offsets that the loss cannot take, by row."""
    family.check_labels(y)
    if weights is not None:
        if len(weights) != len(y):
            raise DataError("sample weights and labels differ in number")
        refuse_rows(
            weights,
            lambda part: ~np.isfinite(part) | (part < 0.0),
            "sample weight is negative or not finite",
        )
    if offset is not None:
        if family.spec.offset_max == 0.0:
            raise SettingsError("an offset needs a declared offset_max in the loss")
        if len(offset) != len(y):
            raise DataError("offsets and labels differ in number")
        refuse_rows(offset, lambda part: ~np.isfinite(part), "offset is not finite")


def _copied(
    values: FloatVector,
    bounded: Callable[[FloatVector], FloatVector],
    *,
    order: NDArray[np.int64] | None,
    room: Room,
) -> FloatVector:
    copy: FloatVector = room((len(values) if order is None else len(order),), np.float64)
    for part in chunks(len(copy)):
        copy[part] = bounded(values[part if order is None else order[part]])
    return copy
