"""The active party's labels, sample weights and offsets, and the residual they give.

It owns what a row brings besides its columns; it knows no columns, no files and no noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.glm.families.base import Family, refuse_rows
from hdpvfl_mq.room import Room, chunks
from hdpvfl_mq.unreleased import FloatVector, Unreleased


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
        h = self.family.residual(self._theta(rows, own, received), self._y[rows])
        return Unreleased(h if self._weights is None else h * self._weights[rows])

    def curvature(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """The derivative of `residual` by theta, row by row; at most the smoothness."""
        slope = self.family.curvature(self._theta(rows, own, received), self._y[rows])
        return Unreleased(slope if self._weights is None else slope * self._weights[rows])

    def loss(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """Weighted losses of the batch, before clipping. Never leaves the party."""
        values = self.family.loss(self._theta(rows, own, received), self._y[rows])
        return Unreleased(values if self._weights is None else values * self._weights[rows])

    def _theta(self, rows: slice, own: Unreleased, received: FloatVector | float) -> FloatVector:
        theta = own.expose() + received
        return theta if self._offset is None else theta + self._offset[rows]

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
