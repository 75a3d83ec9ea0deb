"""The active party's labels, sample weights and offsets, and the residual they give.

It owns the values of a row besides its columns; it knows no columns, no files and no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import CHUNK_ROWS, Allocate, chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.glm.families.base import Family
from schemas.model import LabelKind


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
        allocate: Allocate = np.empty,
    ) -> None:
        """`order` lists the rows to take; None takes all rows in their order."""
        if any(part is not None and len(part) != len(y) for part in (weights, offset)):
            raise DataError("labels, sample weights and offsets differ in number")
        if offset is not None and family.spec.offset_max == 0.0:
            raise SettingsError("an offset needs a declared offset_max in the loss")
        weight_max, offset_max = family.spec.weight_max, family.spec.offset_max
        self.family = family
        copied = partial(_copied, order=order, allocate=allocate)
        self._y = copied(y, family.coded)
        self._weights = self._offset = None
        if weights is not None:
            self._weights = copied(weights, lambda part: np.fmin(np.fmax(part, 0.0), weight_max))
        if offset is not None:
            self._offset = copied(
                offset, lambda part: np.fmin(np.fmax(part, -offset_max), offset_max)
            )

    @property
    def rows(self) -> int:
        """Common rows."""
        return len(self._y)

    def centred_labels(self, rows: slice, allocate: Allocate = np.empty) -> Unreleased:
        """v (c - y) over v_max times half the declared range, c in its middle.

        *Bound*: between -1 and 1 for every label and weight; it depends on no column.
        """
        low, high = self.family.mean_range
        labels, weights = self._y[rows], self._weights
        found = allocate((len(labels),), np.float64)
        for part in chunks(len(labels)):
            y = self.family.as_mean(labels[part])
            centred = ((low + high) / 2.0 - y) / ((high - low) / 2.0)
            if weights is not None:
                centred = centred * (weights[rows][part] / self.family.spec.weight_max)
            found[part] = np.clip(centred, -1.0, 1.0)
        return Unreleased(found)

    def residual(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """h of the batch; theta adds up this party's scores, the received scores and the offset."""
        return self._each(self.family.residual, rows, own, received)

    def curvature(self, rows: slice, own: Unreleased, received: FloatVector | float) -> Unreleased:
        """The derivative of `residual` with respect to theta, per row; at most the smoothness."""
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
        """A weighted formula of theta and label, chunk by chunk: a batch may hold all rows."""
        scores = own.expose()

        def weighted(part: slice) -> FloatVector:
            here = slice(rows.start + part.start, rows.start + part.stop)
            theta = scores[part] + (received if isinstance(received, float) else received[part])
            if self._offset is not None:
                theta = theta + self._offset[here]
            values = formula(theta, self._y[here])
            return values if self._weights is None else values * self._weights[here]

        if len(scores) <= CHUNK_ROWS:
            return Unreleased(weighted(slice(0, len(scores))))
        found = np.empty(len(scores))
        for part in chunks(len(scores)):
            found[part] = weighted(part)
        return Unreleased(found)

    def __repr__(self) -> str:
        return f"<Response of {self.rows} rows, {self.family.name}>"


# By kind of labels: the loss kinds that accept them.
_TAKEN_BY: Mapping[LabelKind, tuple[LabelKind, ...]] = {
    "binary": ("binary", "count", "real"),
    "count": ("count", "real"),
    "positive": ("positive", "real"),
    "real": ("real",),
}


def check_declared(family: Family, *, label_kind: LabelKind, has_offset: bool) -> None:
    """Refuse a loss that does not fit labels of the declared kind, or offsets.

    *Guarantee.* It sees no row: the result depends on settings alone, so offering one loss after
    the other reveals nothing about the labels.
    """
    if family.label_kind not in _TAKEN_BY[label_kind]:
        raise SettingsError(
            f"data.label_kind is {label_kind}, {family.name} takes {family.label_kind} labels: "
            "change the loss, or declare what the labels are"
        )
    if has_offset and family.spec.offset_max == 0.0:
        raise SettingsError("an offset needs a declared offset_max in the loss")


def _copied(
    values: FloatVector,
    bounded: Callable[[FloatVector], FloatVector],
    *,
    order: NDArray[np.int64] | None,
    allocate: Allocate,
) -> FloatVector:
    copy: FloatVector = allocate((len(values) if order is None else len(order),), np.float64)
    for part in chunks(len(copy)):
        copy[part] = bounded(values[part if order is None else order[part]])
    return copy
