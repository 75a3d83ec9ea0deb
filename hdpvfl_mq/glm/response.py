"""The active party's labels, sample weights and offsets, and the residual they give.

It owns what a row brings besides its columns; it knows no columns, no files and no noise.
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.glm.families.base import Family, refuse_rows
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
    ) -> None:
        self.family = family
        self._y = family.encode(y)
        self._weights = _bounded_weights(weights, len(y), family.spec.weight_max)
        self._offset = _bounded_offset(offset, len(y), family.spec.offset_max)

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


def _bounded_weights(
    weights: FloatVector | None, rows: int, weight_max: float
) -> FloatVector | None:
    if weights is None:
        return None
    if len(weights) != rows:
        raise DataError("sample weights and labels differ in number")
    refuse_rows(~np.isfinite(weights) | (weights < 0.0), "sample weight is negative or not finite")
    return np.minimum(weights, weight_max)


def _bounded_offset(offset: FloatVector | None, rows: int, offset_max: float) -> FloatVector | None:
    if offset is None:
        return None
    if offset_max == 0.0:
        raise SettingsError("an offset needs a declared offset_max in the loss")
    if len(offset) != rows:
        raise DataError("offsets and labels differ in number")
    refuse_rows(~np.isfinite(offset), "offset is not finite")
    return np.clip(offset, -offset_max, offset_max)
