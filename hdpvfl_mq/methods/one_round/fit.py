"""What each side of the one-round method minimises.

It owns the two fits; it knows no noise and no message. The active party minimises its own loss and
releases the residuals; every passive party fits its scores to what it received and releases them;
nothing follows.
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import (
    Objective,
    accelerated,
    mean_gradient,
    newton,
    parts,
    quadratic_over_ball,
)


def fit_active(
    block: ColumnBlock, response: Response, *, strength: float, feature_norm: float, error: float
) -> FloatVector:
    """argmin mean loss of X w + strength / 2 |w|^2 (the intercept too), |features| <= feature_norm.

    *Bound*: within `error` of it whatever the data are, half of that for roundings.
    """
    objective = Objective(
        block=block,
        response=response,
        strengths=np.full(block.columns, strength),
        radius=feature_norm,
    )
    tolerance = error * strength / 2.0
    w, certified = newton(objective, tolerance=tolerance)
    return w if certified else accelerated(objective, tolerance=tolerance)


def fit_passive(
    block: ColumnBlock,
    clipped: FloatVector,
    *,
    curvature: float,
    strength: float,
    weight_norm: float,
) -> FloatVector:
    """argmin z'Xw / n + curvature / 2 |Xw|^2 / n + strength / 2 |w|^2 over |w| <= weight_norm.

    z is what was received, already clipped. Solved directly: the error is that of roundings.
    """
    B = np.zeros((block.columns, block.columns))
    for part in parts(block.rows):
        B += block.gram(part) * (curvature * (part.stop - part.start) / block.rows)
    B[np.diag_indices_from(B)] += strength
    pull = mean_gradient(block, clipped)
    return quadratic_over_ball(B, -pull, radius=weight_norm, intercept=False)
