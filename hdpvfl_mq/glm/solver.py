"""Minimisers of one party's own convex objective, to a stated distance from the true one.

It owns the quadratic over a ball, Newton's method with its certificate, and the slower method that
cannot fail; it knows no party, no message and no noise. The objective is a mean loss of the party's
own columns plus 1/2 sum strengths w^2, over weights whose features have a bounded norm; an
intercept lies outside the ball.

*Bound*: let w be in the ball, g the gradient there, and r = g + nu w on the features, where nu >= 0
is 0 unless w lies on the sphere. For the minimiser w* over the ball, strong convexity (the smallest
strength m) and the optimality of w* give m |w - w*|^2 <= g'(w - w*), and on the sphere
-nu w'(w - w*) <= 0 by Cauchy-Schwarz, so |w - w*| <= |r| / m. `certificate` is |r|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.response import Response

# Rows summed in one product: a sum over n rows is then off by (4096 + n / 4096) roundings at most.
PART_ROWS = 4096
NEWTON_STEPS = 60
_HALVINGS = 200
# This close to the sphere, relatively, is on it: a few roundings.
_ON_SPHERE = 1.0 - 2.0**-49
_CHECK_EVERY = 16
# The slow method stops when its error in the objective has fallen by exp(-84) = 2^-121.
_ACCELERATED_DEPTH = 84.0


def parts(rows: int) -> Iterator[slice]:
    """Slices of at most PART_ROWS rows."""
    for start in range(0, rows, PART_ROWS):
        yield slice(start, min(start + PART_ROWS, rows))


def mean_gradient(block: ColumnBlock, h: FloatVector) -> FloatVector:
    """X'h / n, part by part."""
    total = np.zeros(block.columns)
    for part in parts(block.rows):
        total += block.gradient(part, h[part]) * (part.stop - part.start)
    return total / block.rows


def quadratic_over_ball(
    B: NDArray[np.float64], c: FloatVector, *, radius: float, intercept: bool
) -> FloatVector:
    """argmin 1/2 v'Bv - c'v with |v| <= radius; a last coordinate `intercept` is not bounded.

    *Domain*: B symmetric and positive definite. The multiplier nu of the ball solves
    |(B + nu I)^-1 c| = radius in the eigenbasis, where the norm falls in nu; the intercept is
    eliminated first. A bounded solution lies on the sphere but for rounding.
    """
    if intercept:
        cross, last = B[:-1, -1], float(B[-1, -1])
        inner = B[:-1, :-1] - np.outer(cross, cross) / last
        features = quadratic_over_ball(
            inner, c[:-1] - cross * (c[-1] / last), radius=radius, intercept=False
        )
        return np.append(features, (c[-1] - cross @ features) / last)
    values, basis = np.linalg.eigh(B)
    a = basis.T @ c
    solution = a / values
    if np.linalg.norm(solution) > radius:
        low, high = 0.0, float(np.linalg.norm(a)) / radius
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            outside = np.linalg.norm(a / (values + middle)) > radius
            low, high = (middle, high) if outside else (low, middle)
        solution = a / (values + high)
        solution *= radius / np.linalg.norm(solution)
    return np.asarray(basis @ solution)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Mean loss of X w + received, plus 1/2 sum strengths w^2, over |features of w| <= radius."""

    block: ColumnBlock
    response: Response
    strengths: FloatVector
    received: FloatVector | float = 0.0
    radius: float = math.inf

    @property
    def rows(self) -> slice:
        return slice(0, self.block.rows)

    def features(self, w: FloatVector) -> FloatVector:
        return w[:-1] if self.block.intercept else w

    def residual(self, theta: FloatVector) -> FloatVector:
        return self.response.residual(self.rows, Unreleased(theta), self.received).expose()

    def gradient(self, w: FloatVector) -> FloatVector:
        h = self.residual(self.block.scores(self.rows, w).expose())
        return mean_gradient(self.block, h) + self.strengths * w

    def certificate(self, w: FloatVector, g: FloatVector) -> float:
        """|r| of the module's bound at w, whose gradient is g."""
        inner = self.features(w)
        norm = float(np.linalg.norm(inner))
        r = g.copy()
        if norm >= self.radius * _ON_SPHERE:
            multiplier = max(0.0, -float(self.features(g) @ inner) / norm**2)
            self.features(r)[:] += multiplier * inner
        return float(np.linalg.norm(r))

    def project(self, w: FloatVector) -> FloatVector:
        """The nearest point with features in the ball."""
        inside = w.copy()
        norm = float(np.linalg.norm(self.features(w)))
        if norm > self.radius:
            self.features(inside)[:] *= self.radius / norm
        return inside

    def model_minimum(self, w: FloatVector, g: FloatVector) -> FloatVector:
        """Where the second-order model around w is smallest in the ball."""
        own = self.block.scores(self.rows, w)
        slope = self.response.curvature(self.rows, own, self.received)
        B = self.block.gram(self.rows, slope)
        B[np.diag_indices_from(B)] += self.strengths
        return quadratic_over_ball(B, B @ w - g, radius=self.radius, intercept=self.block.intercept)


def newton(objective: Objective, *, tolerance: float) -> tuple[FloatVector, bool]:
    """Minimise; says whether the certificate came down to `tolerance`.

    A full step is taken where it halves the best certificate so far, else a step along it that
    lowers the objective; so it does not cycle where the curvature jumps.
    """
    w = np.zeros(objective.block.columns)
    g = objective.gradient(w)
    best = objective.certificate(w, g)
    for _ in range(NEWTON_STEPS):
        if objective.certificate(w, g) <= tolerance:
            return w, True
        target = objective.model_minimum(w, g)
        ahead = objective.gradient(target)
        if objective.certificate(target, ahead) > best / 2.0:
            target = w + _line_step(objective, w, target - w) * (target - w)
            ahead = objective.gradient(target)
        w, g = target, ahead
        best = min(best, objective.certificate(w, g))
    return w, objective.certificate(w, g) <= tolerance


def _line_step(objective: Objective, w: FloatVector, d: FloatVector) -> float:
    """A step in [0, 1] along d that lowers the convex objective: its slope there is still down.

    The slope rises along the line; half of it must be gone, so that the step is not too short.
    """
    theta = objective.block.scores(objective.rows, w).expose()
    move = objective.block.scores(objective.rows, d).expose()

    def slope(t: float) -> float:
        loss = float(objective.residual(theta + t * move) @ move) / len(move)
        return loss + float((objective.strengths * (w + t * d)) @ d)

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


def accelerated(objective: Objective, *, tolerance: float) -> FloatVector:
    """Minimise by projected gradient steps with constant momentum.

    *Guarantee*: with m the smallest and M the largest curvature of the objective, its error falls
    by 1 - sqrt(m / M) a step whatever the data are, so it ends within a public number of steps.
    """
    least = float(objective.strengths.min())
    most = objective.response.family.smoothness + float(objective.strengths.max())
    root = math.sqrt(least / most)
    momentum = (1.0 - root) / (1.0 + root)
    w = ahead = np.zeros(objective.block.columns)
    for step in range(math.ceil(_ACCELERATED_DEPTH / root)):
        if step % _CHECK_EVERY == 0 and (
            objective.certificate(w, objective.gradient(w)) <= tolerance
        ):
            break
        moved = objective.project(ahead - objective.gradient(ahead) / most)
        w, ahead = moved, moved + momentum * (moved - w)
    return w
