"""How far one row can move the noised scores of un-noised weights.

It owns the square of that distance; it knows no noise and no model.
"""

from __future__ import annotations

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.block import SCORE_ROUNDING
from hdpvfl_mq.privacy.plan import float_slack


def prediction_square(rows: int, *, distance: float, radius: float, grid: float) -> float:
    """Bound s^2 of the noised scores of `rows` distinct rows, for a row of the training data.

    *Bound.* (M - 1)(d_model + g')^2 + (2k + g')^2, g' = grid + float_slack. For a row that is
    scored but not learnt from, use `rows` = 1.
    """
    if rows < 1 or not 0.0 <= distance <= 2.0 * radius:
        raise SettingsError("score at least one row, with a model distance within 2k")
    slack = grid + float_slack(SCORE_ROUNDING * radius)
    square = (rows - 1) * (distance + slack) ** 2 + (2.0 * radius + slack) ** 2
    return square * (1.0 + 2.0**-48)
