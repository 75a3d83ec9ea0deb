"""The minimiser of one party's own convex objective, by Newton's method.

It owns the steps and the stop rule; it knows no party, no message and no noise. The objective is a
mean loss of the party's own columns plus 1/2 sum strengths w^2. The result never leaves its party
un-noised, so no bound depends on its accuracy. The solver ends for all data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.response import Response

NEWTON_STEPS = 60
_HALVINGS = 200
# Curvature is floored at this share of its maximum, so flat directions need no special case.
_FLATTEST = 1e-16


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Mean loss of X w + received, plus 1/2 sum strengths w^2."""

    block: ColumnBlock
    response: Response
    strengths: FloatVector
    received: FloatVector | float = 0.0

    @property
    def rows(self) -> slice:
        return slice(0, self.block.rows)

    def residual(self, theta: FloatVector) -> FloatVector:
        return self.response.residual(self.rows, Unreleased(theta), self.received).expose()

    @property
    def columns(self) -> int:
        return self.block.columns

    def loss_gradient(self, w: FloatVector) -> FloatVector:
        h = self.residual(self.block.scores(self.rows, w).expose())
        return self.block.gradient(self.rows, h)

    def gradient(self, w: FloatVector) -> FloatVector:
        return self.loss_gradient(w) + self.strengths * w

    def hessian(self, w: FloatVector) -> NDArray[np.float64]:
        """Curvature of the mean loss, without the strengths."""
        own = self.block.scores(self.rows, w)
        slope = self.response.curvature(self.rows, own, self.received)
        return self.block.gram(self.rows, slope)

    def slope_along(self, w: FloatVector, d: FloatVector) -> Callable[[float], float]:
        """The derivative of the mean loss at w + t d along d, as a function of t."""
        theta = self.block.scores(self.rows, w).expose()
        move = self.block.scores(self.rows, d).expose()
        return lambda t: float(self.residual(theta + t * move) @ move) / len(move)


class Convex(Protocol):
    """What the solver asks of an objective."""

    @property
    def columns(self) -> int: ...

    @property
    def strengths(self) -> FloatVector: ...

    def gradient(self, w: FloatVector) -> FloatVector: ...

    def hessian(self, w: FloatVector) -> NDArray[np.float64]: ...

    def slope_along(self, w: FloatVector, d: FloatVector) -> Callable[[float], float]: ...


def newton(objective: Convex, *, tolerance: float, start: FloatVector | None = None) -> FloatVector:
    """Minimise from `start`, or zero, until the norm of the gradient is at most `tolerance`.

    A full step is taken if it halves the smallest gradient so far, else a shorter step in the same
    direction that lowers the objective; so it does not cycle where the curvature jumps.
    """
    w = np.zeros(objective.columns) if start is None else start
    g = objective.gradient(w)
    best = float(np.linalg.norm(g))
    for _ in range(NEWTON_STEPS):
        if np.linalg.norm(g) <= tolerance:
            break
        d = _model_step(objective, w, g)
        ahead = objective.gradient(w + d)
        if np.linalg.norm(ahead) > best / 2.0:
            d = _line_step(objective, w, d) * d
            ahead = objective.gradient(w + d)
        w, g = w + d, ahead
        best = min(best, float(np.linalg.norm(g)))
    return w


def _model_step(objective: Convex, w: FloatVector, g: FloatVector) -> FloatVector:
    """The step from w to the minimum of the second-order model around w."""
    B = objective.hessian(w)
    B[np.diag_indices_from(B)] += objective.strengths
    return _solved(B, -g)


def _solved(B: NDArray[np.float64], c: FloatVector) -> FloatVector:
    """B^-1 c for a positive matrix; a singular B does not raise."""
    values, basis = np.linalg.eigh(B)
    floor = max(_FLATTEST * float(values[-1]), 1e-300)
    return np.asarray(basis @ ((basis.T @ c) / np.maximum(values, floor)))


def _line_step(objective: Convex, w: FloatVector, d: FloatVector) -> float:
    """A step in [0, 1] along d that lowers the convex objective: the slope is still negative there.

    The slope rises along the line. At least half of it must be gone, so that the step is not too
    short.
    """
    loss_slope = objective.slope_along(w, d)

    def slope(t: float) -> float:
        return loss_slope(t) + float((objective.strengths * (w + t * d)) @ d)

    start = slope(0.0)
    low, high = 0.0, 1.0
    if slope(high) <= 0.0:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        there = slope(middle)
        low, high = (middle, high) if there <= 0.0 else (low, middle)
        if start / 2.0 <= there <= 0.0:
            break
    return low
