"""Losses of a difference theta - y with real labels: least squares and Huber.

It owns their formulas; it knows nothing of clipping or of noise. Labels are expected to be
standardised by constants from the party's settings.
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families.base import Family

STANDARDISED = (-3.0, 3.0)


class Difference(Family):
    """Common part of losses of theta - y. *Domain*: real y. *Link*: identity."""

    label_kind = "real"
    default_range = STANDARDISED

    def _mean(self, theta: FloatVector) -> FloatVector:
        return theta

    def link(self, mean: FloatVector) -> FloatVector:
        """The identity."""
        return mean

    def path_slopes(self) -> tuple[float, float]:
        """The bound, which is reached."""
        return self.smoothness, self.smoothness


class LeastSquares(Difference):
    """loss = (y - theta)^2, h = 2 (theta - y).

    *Domain*: real y. *Link*: identity. *Bound*: clipped at 6 unless stated, smoothness 2.
    """

    name = "least_squares"

    def _clip_bound(self) -> float:
        return self.spec.residual_clip or 6.0

    def _curvature_bound(self) -> float:
        return 2.0

    def _largest_number(self) -> float:
        return 2.0 * self.label_bound + self.clip  # theta is within L / 2 of the label there

    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return (theta - y) ** 2

    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return 2.0 * (theta - y)

    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        del y
        return np.full_like(theta, 2.0)

    def published_terms(self) -> tuple[float, float]:
        """As in the paper."""
        return 2.0, 3.0


class Huber(Difference):
    """loss = d^2 / 2 within c of the label, c abs(d) - c^2 / 2 beyond; h = clip(d, -c, c).

    *Domain*: real y. *Link*: identity. *Bound*: c, smoothness 1.
    """

    name = "huber"

    def _clip_bound(self) -> float:
        c = self.spec.huber_c
        return min(c, self.spec.residual_clip or c)

    def _curvature_bound(self) -> float:
        return 1.0

    def _largest_number(self) -> float:
        return self.label_bound + self.clip  # theta is within L of the label there

    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        c = self.spec.huber_c
        inside = np.clip(theta - y, -c, c)
        return inside * (theta - y) - inside**2 / 2.0

    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return np.clip(theta - y, -self.spec.huber_c, self.spec.huber_c)

    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return np.where(np.abs(theta - y) <= self.spec.huber_c, 1.0, 0.0)

    def published_terms(self) -> tuple[float, float]:
        """Not in the paper: the derivative with respect to y, and the declared range."""
        return 1.0, self.label_bound
