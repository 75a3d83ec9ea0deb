"""The joint model as one row of coefficients, in the units of the original columns.

It owns the conversion back from every party's standardised columns; it knows no fit. A passive
party scales each row to a norm of at most 1 before it scores the row, so its coefficients hold for
a row inside that ball and shrink with the norm of a row outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdpvfl_mq.app.estimators.columns import Matrix, Standardised


@dataclass(frozen=True)
class Coefficients:
    """One entry for each column of the matrix that was fitted."""

    coef: Matrix = field(repr=False)
    std: Matrix = field(repr=False)  # the deviation that the noise adds, nan where unknown
    intercept: float


def coefficients(
    models: Mapping[str, dict[str, Any]], parts: Sequence[Standardised]
) -> Coefficients:
    """Every party's weights, times the active party's coefficient for that party."""
    count = 1 + max(column for part in parts for column in part.columns)
    coef, std, intercept = np.zeros(count), np.full(count, np.nan), 0.0
    factors = next(m.get("coefficients", {}) for m in models.values() if m["role"] == "active")
    for (party, model), part in zip(models.items(), parts, strict=True):
        w, w_std = np.array(model["weights"]), np.array(model.get("weights_std", ()))
        factor = factors.get(party, 1.0)
        if model["role"] == "active" and model["manifest"]["intercept"]:
            if model["scale_rows"]:  # the party's block is (x, 1) / sqrt(2)
                w, w_std = w / math.sqrt(2.0), w_std / math.sqrt(2.0)
            intercept += float(w[-1])
        columns, width = list(part.columns), len(part.columns)
        coef[columns] = factor * w[:width] / part.scale
        if len(w_std) >= width:
            std[columns] = abs(factor) * w_std[:width] / part.scale
        intercept -= float(coef[columns] @ part.centre)
    return Coefficients(coef, std, intercept)
