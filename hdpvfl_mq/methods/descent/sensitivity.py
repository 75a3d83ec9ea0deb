"""How much one replaced row can move what a party releases over a whole run.

It owns the recursion over the public schedule and the choice of the grid; it knows no data, no
noise and no penalty. The schedule is a fixed partition into r batches, round t uses batch t mod r,
so the rows fall into r classes and one vector of r distances describes every row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.methods.descent.bound import Bounds, FloatArray, PublicSchedule, Recursion, per_round
from hdpvfl_mq.privacy.plan import COARSEST_EXPONENT, FINEST_EXPONENT, FLOAT_SLACK

# The grid may add this share to the sensitivity.
_GRID_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class SensitivityProfile:
    """*Bound.* Upper bounds over all rows, all data and all received values.

    `cumulative[t]` is the cost of the releases of rounds 0..t at noise_std = 1 (a square),
    whichever of them happened. `total` = Delta. `distance` bounds the distance of the final weights
    of neighbours.
    """

    cumulative: FloatArray
    total: float
    distance: float


def distances(recursion: Recursion, schedule: PublicSchedule) -> Iterator[FloatArray]:
    """Yield d_0, ..., d_T for every class of rows; each is overwritten by the next.

    *Bound.* d <- rho d + [row in the step's rows] 2 eta pull / b, at most 2k, plus the rounding
    errors of one step in float64 once the two runs differ.
    """
    d = np.full(len(schedule.batch_rows), recursion.start_distance)
    etas = per_round(schedule.eta, schedule.rounds)
    yield d
    for t in range(schedule.rounds):
        rows, batch = schedule.rows_in(t), t % len(schedule.batch_rows)
        push = 2.0 * etas[t] * recursion.pull / rows
        rounding = etas[t] * recursion.pull * (rows + 16) * 2.0**-52 + recursion.radius * 2.0**-49
        for _ in range(recursion.local_steps):
            d[:] = np.where(d > 0.0, recursion.rho[t] * d + rounding, 0.0)
            d[batch] += push
            np.minimum(d, 2.0 * recursion.radius, out=d)
        yield d


def _squares(
    recursion: Recursion, schedule: PublicSchedule, slack: float
) -> tuple[FloatArray, FloatArray, float]:
    """Fold s_t^2 as a polynomial in the slack: (largest sum after each round, sums, largest d)."""
    sums = np.zeros((3, len(schedule.batch_rows)))
    cumulative = np.empty(schedule.rounds)
    for t, d in enumerate(distances(recursion, schedule)):
        if t == schedule.rounds:
            return cumulative, sums, float(d.max())
        rows, batch, own = schedule.rows_in(t), t % len(schedule.batch_rows), recursion.own_move[t]
        others = np.full(len(schedule.batch_rows), float(rows))
        others[batch] -= 1.0
        move, parted = recursion.gain * d, d > 0.0
        sums += others * np.stack([move * move, 2.0 * move, parted])
        if own > 0.0:
            sums[:, batch] += (own * own, 2.0 * own, 1.0)
        cumulative[t] = _largest(sums, slack)
    raise AssertionError("the walk yields one vector more than there are rounds")


def _largest(sums: FloatArray, slack: float) -> float:
    """The largest sum of any row. No matrix product: libraries round these differently."""
    return float((sums[0] + slack * sums[1] + slack * slack * sums[2]).max())


def profile(bounds: Bounds, schedule: PublicSchedule, *, grid: float) -> SensitivityProfile:
    """The largest sum of s_t^2 over the rounds, among all rows of the public schedule.

    *Bound.* With g' = grid + the slack of the recursion: s_t^2 = b (gain d_t + g')^2 for a row
    outside the batch, 0 while d_t = 0; (b - 1)(gain d_t + g')^2 + (own move + g')^2 for one in it.
    """
    recursion = bounds.recursion(schedule)
    cumulative, _, distance = _squares(recursion, schedule, grid + recursion.slack(schedule))
    # In sums of non-negative terms the relative error grows by at most a few ulp per step.
    up = 1.0 + (16 * schedule.rounds * recursion.local_steps + 64) * 2.0**-53
    cumulative *= up
    total = math.sqrt(cumulative[-1]) * (1.0 + 2.0**-52)
    return SensitivityProfile(cumulative, total, (distance + recursion.drift(schedule)) * up)


def coarsest_grid(bounds: Bounds, schedule: PublicSchedule) -> int:
    """The exponent of the largest power of two that adds less than 0.1 % to Delta."""
    recursion = bounds.recursion(schedule)
    _, sums, _ = _squares(recursion, schedule, 0.0)
    slack = recursion.slack(schedule)
    allowed = _largest(sums, slack - FLOAT_SLACK) * (1.0 + _GRID_SHARE) ** 2
    for exponent in range(COARSEST_EXPONENT, FINEST_EXPONENT, -1):
        if _largest(sums, 2.0**exponent + slack) < allowed:
            return exponent
    return FINEST_EXPONENT
