"""Losses of two classes: the logit link, logistic and squared hinge.

It owns their formulas and the encoding of two classes; it knows nothing of noise.
"""

from __future__ import annotations

import math

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families.base import EXPONENT_LIMIT, Family


def sigmoid(theta: FloatVector) -> FloatVector:
    """1 / (1 + exp(-theta)). *Domain*: abs(theta) at most EXPONENT_LIMIT."""
    below = np.exp(-theta)
    below += 1.0  # in place: a new array of a batch costs more than the sum
    return 1.0 / below


class Logit(Family):
    """Common part of losses with the logit link, for any encoding of the two classes.

    *Link*: logit. *Bound*: abs(h) at most 1, smoothness 1/4.
    """

    label_kind = "binary"
    theta_range = (-EXPONENT_LIMIT, EXPONENT_LIMIT)
    is_logit = True

    def _clip_bound(self) -> float:
        return min(1.0, self.spec.residual_clip or 1.0)

    def _curvature_bound(self) -> float:
        return 0.25

    def _largest_number(self) -> float:
        return 1.0

    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        del y
        return sigmoid(theta) * sigmoid(-theta)

    def _mean(self, theta: FloatVector) -> FloatVector:
        return sigmoid(theta)

    def link(self, mean: FloatVector) -> FloatVector:
        """log(p / (1 - p)); p = 0 and p = 1 give the ends of the range of scores."""
        with np.errstate(divide="ignore"):
            return self.clamp(np.log(mean) - np.log1p(-mean))

    def release_bound(self, k: float) -> float:
        """1 + tanh(k / 2) instead of 2.

        *Bound*: with the received part a of theta fixed, theta lies in a +- (k + offset_max), and
        sigmoid(s - a) + sigmoid(s + a) is largest at a = 0, where it is 1 + tanh(s / 2). Clipping
        does not enlarge a difference. The last factor covers the rounding of tanh.
        """
        reach = (k + self.spec.offset_max) / 2.0
        swing = self.spec.weight_max * (1.0 + math.tanh(reach)) * (1.0 + 2.0**-50)
        return min(2.0 * self.residual_bound, swing)

    def path_slopes(self) -> tuple[float, float]:
        """The bound, which is reached."""
        return self.smoothness, self.smoothness

    def published_terms(self) -> tuple[float, float]:
        """As in the paper."""
        return 1.1, 1.0


class Logistic(Logit):
    """loss = log(1 + exp(-y theta)), h = -y / (1 + exp(y theta)).

    *Domain*: y in {-1, +1}.
    """

    name = "logistic"
    default_range = (-1.0, 1.0)

    def coded(self, y: FloatVector) -> FloatVector:
        """1 becomes +1, both 0 and -1 become -1."""
        return margin_sign(y)

    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        margin = y * theta
        # log(1 + exp(-margin)), a quarter of the time of logaddexp.
        return np.log1p(np.exp(-np.abs(margin))) + np.maximum(0.0, -margin)

    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        opposite = -y
        return opposite * sigmoid(opposite * theta)


def margin_sign(y: FloatVector) -> FloatVector:
    """+1 for the upper class, -1 for the lower."""
    return np.where(y > 0.0, 1.0, -1.0)


class SquaredHinge(Family):
    """loss = max(0, 1 - y theta)^2, h = -2 y max(0, 1 - y theta): the l2 support vector machine.

    *Domain*: y in {-1, +1}. *Link*: theta = 2 p - 1, which minimises the expected loss.
    *Bound*: clipped at 2 unless stated, smoothness 2.
    """

    name = "squared_hinge"
    label_kind = "binary"
    default_range = (-1.0, 1.0)

    def coded(self, y: FloatVector) -> FloatVector:
        """1 becomes +1, both 0 and -1 become -1."""
        return margin_sign(y)

    def _clip_bound(self) -> float:
        return self.spec.residual_clip or 2.0

    def _curvature_bound(self) -> float:
        return 2.0

    def _largest_number(self) -> float:
        return self.clip + 4.0  # abs(theta) is at most 1 + L / 2 there

    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return np.maximum(0.0, 1.0 - y * theta) ** 2

    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return -2.0 * y * np.maximum(0.0, 1.0 - y * theta)

    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return np.where(y * theta < 1.0, 2.0, 0.0)

    def _mean(self, theta: FloatVector) -> FloatVector:
        return np.clip((1.0 + theta) / 2.0, 0.0, 1.0)

    def link(self, mean: FloatVector) -> FloatVector:
        """2 p - 1."""
        return 2.0 * mean - 1.0

    def path_slopes(self) -> tuple[float, float]:
        """The bound, which is reached."""
        return self.smoothness, self.smoothness

    def published_terms(self) -> tuple[float, float]:
        """As in the paper."""
        return 2.0, 1.0
