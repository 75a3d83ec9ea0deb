"""How far one replaced row moves the releases of descent: the recursion of docs/privacy.md.

It knows no loss and no noise. Rows fall into classes, one for each batch of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .losses import SCORE_ROUNDING

Sums = tuple[list[float], list[float], list[float]]  # factors of 1, g' and g'^2, for each class
FLOAT_SLACK = 2.0**-30  # the least that is charged for floating-point arithmetic


@dataclass(frozen=True)
class Side:
    """One side's schedule and bounds: distances grow by `pull`, releases move by `gain` times."""

    sizes: list[int]
    etas: list[float]
    rho: float
    radius: float
    gain: float
    pull: float
    own: list[float]
    rounding: float  # of a release
    step_rounding: float
    steps: int = 1

    @property
    def slack(self) -> float:
        """What a coordinate pays for floating-point arithmetic, besides the grid."""
        drift = min(self.steps * math.fsum(self.etas) * self.step_rounding, 2.0 * self.radius)
        return max(FLOAT_SLACK, self.rounding + self.gain * drift)


def passive_reach(radius: float, clip: float, rho: float, etas: list[float]) -> list[float]:
    """Twice the largest norm of the weights before each round: how far an own score moves."""
    norms, norm = [], 0.0
    for eta in etas:
        norms.append(2.0 * norm)
        norm = min(radius, (rho * norm + eta * clip) * (1 + 2.0**-50))
    return norms


def passive_side(
    sizes: list[int], etas: list[float], rho: float, radius: float, clip: float
) -> Side:
    own = passive_reach(radius, clip, rho, etas)
    return Side(sizes, etas, rho, radius, 1.0, clip, own, SCORE_ROUNDING * radius, 0.0)


def squares(side: Side) -> Iterator[Sums]:
    """Sums of s_t^2 after each round, as polynomials in g'; every item is the same lists."""
    classes = len(side.sizes)
    d = [0.0] * classes
    sums: Sums = ([0.0] * classes, [0.0] * classes, [0.0] * classes)
    one, linear, square = sums
    for t, (eta, own) in enumerate(zip(side.etas, side.own, strict=True)):
        batch = t % classes
        rows = side.sizes[batch]
        for c, distance in enumerate(d):
            if distance > 0.0:
                others, move = float(rows) - (c == batch), side.gain * distance
                one[c] += others * (move * move)
                linear[c] += others * (2.0 * move)
                square[c] += others
        if own > 0.0:
            one[batch] += own * own
            linear[batch] += 2.0 * own
            square[batch] += 1.0
        yield sums
        push = 2.0 * eta * side.pull / rows
        rounding = eta * side.pull * (rows + 16) * 2.0**-52 + side.radius * 2.0**-49
        for _ in range(side.steps):
            d = [side.rho * x + rounding if x > 0.0 else 0.0 for x in d]
            d[batch] += push
            d = [min(x, 2.0 * side.radius) for x in d]


def largest(sums: Sums, slack: float) -> float:
    square = slack * slack
    return max(a + slack * b + square * c for a, b, c in zip(*sums, strict=True))


def cumulative(side: Side, grid: float) -> list[float]:
    """The largest sum of squares of any row after each round, rounded up."""
    slack = grid + side.slack
    up = 1.0 + (16 * len(side.etas) * side.steps + 64) * 2.0**-53
    return [largest(sums, slack) * up for sums in squares(side)]


def coarsest_grid(side: Side) -> int:
    """The exponent of the largest power of two that adds less than 0.1 % to Delta."""
    *_, sums = squares(side)
    allowed = largest(sums, side.slack - FLOAT_SLACK) * (1.0 + 1e-3) ** 2
    for exponent in range(20, -30, -1):
        if largest(sums, 2.0**exponent + side.slack) < allowed:
            return exponent
    return -30
