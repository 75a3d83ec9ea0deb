"""The exponential dispersion family with its canonical link: Normal, Bernoulli, Poisson, Gamma.

It owns loss = (b(theta) - y theta) / a(phi) and what follows from b; it knows nothing of clipping
or of noise. The published residual has the sign of the log-likelihood; here the residual is the
derivative of the minimised loss, h = (b'(theta) - y) / a(phi), and b' is the inverse link.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families.base import EXPONENT_LIMIT, Family
from hdpvfl_mq.glm.families.binary import Logit, sigmoid
from hdpvfl_mq.glm.families.real import Difference
from schemas.model import LossSpec

_SMALLEST = float(np.finfo(np.float64).tiny)


class ExponentialDispersion(Family):
    """A subclass gives b(theta) and b'(theta); a(phi) is the dispersion, 1 if it is fixed."""

    @property
    def scale(self) -> float:
        """a(phi)."""
        return self.spec.dispersion

    @abstractmethod
    def cumulant(self, theta: FloatVector) -> FloatVector:
        """b(theta)."""

    @abstractmethod
    def variance(self, theta: FloatVector) -> FloatVector:
        """b''(theta): the variance of a label is b''(theta) a(phi)."""

    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return (self.cumulant(theta) - y * theta) / self.scale

    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return (self._mean(theta) - y) / self.scale

    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        del y
        return self.variance(theta) / self.scale


class Normal(ExponentialDispersion, Difference):
    """b = theta^2 / 2: least squares up to scale.

    *Domain*: real y. *Link*: identity. *Bound*: clipped at 3 / phi unless stated, half of least
    squares; smoothness 1 / phi.
    """

    name = "normal"
    has_dispersion = True

    def _clip_bound(self) -> float:
        return self.spec.residual_clip or 3.0 / self.scale

    def _curvature_bound(self) -> float:
        return 1.0 / self.scale

    def _largest_number(self) -> float:
        return self.label_bound / self.scale + self.clip  # theta is within phi L of the label there

    def cumulant(self, theta: FloatVector) -> FloatVector:
        return theta**2 / 2.0

    def variance(self, theta: FloatVector) -> FloatVector:
        return np.ones_like(theta)

    def published_terms(self) -> tuple[float, float]:
        """As in the paper."""
        return 1.0, 3.0


class Bernoulli(ExponentialDispersion, Logit):
    """b = log(1 + exp(theta)): logistic with labels 0 and 1. *Domain*: y in {0, 1}."""

    name = "bernoulli"
    default_range = (0.0, 1.0)

    def coded(self, y: FloatVector) -> FloatVector:
        """1 stays 1, both 0 and -1 become 0."""
        return np.where(y > 0.0, 1.0, 0.0)

    def cumulant(self, theta: FloatVector) -> FloatVector:
        return np.logaddexp(0.0, theta)

    def variance(self, theta: FloatVector) -> FloatVector:
        return sigmoid(theta) * sigmoid(-theta)


class Poisson(ExponentialDispersion):
    """b = exp(theta), h = exp(theta) - y.

    *Domain*: counts, clipped to [0, k_y]. *Link*: log. *Bound*: clipped at k_y unless stated;
    where abs(h) <= L, exp(theta) <= L + k_y, which is the smoothness.
    """

    name = "poisson"
    label_kind = "count"
    is_log = True
    default_range = (0.0, 10.0)
    theta_range = (-EXPONENT_LIMIT, EXPONENT_LIMIT)

    def _clip_bound(self) -> float:
        return self.spec.residual_clip or self.label_high

    def _curvature_bound(self) -> float:
        return self.clip + self.label_high

    def _largest_number(self) -> float:
        mean = self.clip + self.label_high
        return mean * max(1.0, math.log(mean))  # and theta is at most the logarithm of that mean

    def cumulant(self, theta: FloatVector) -> FloatVector:
        return np.exp(theta)

    def variance(self, theta: FloatVector) -> FloatVector:
        return np.exp(theta)

    def _mean(self, theta: FloatVector) -> FloatVector:
        return np.exp(theta)

    def link(self, mean: FloatVector) -> FloatVector:
        """log(mean); a mean of zero is the lower end of the range of scores."""
        return self.clamp(np.log(np.maximum(mean, _SMALLEST)))

    def path_slopes(self) -> tuple[float, float]:
        """Over all rows the mean label, and 1 at the start; a third of the largest label is rare.

        A step that is too long makes exp(theta) overflow; a shorter one only takes more rounds.
        """
        steepest = max(1.0, self.label_high / 3.0)
        return self.spec.weight_max, steepest * self.spec.weight_max

    def published_terms(self) -> tuple[float, float]:
        """Not in the paper: the derivative with respect to y, and the declared range."""
        return 1.0, self.label_bound


class GammaCanonical(ExponentialDispersion):
    """b = -log(-theta) on theta < 0, h = -(y + 1 / theta) / phi.

    *Domain*: y > 0, clipped to [y_min, k_y]; theta clamped to [-theta_max, -theta_min].
    *Link*: theta = -1 / mean. *Bound*: clipped at k_y / phi unless stated; the smoothness is
    mean^2 / phi, and mean is at most 1 / theta_min and, where abs(h) <= L, phi L + k_y.
    """

    name = "gamma_canonical"
    label_kind = "positive"
    default_range = (0.01, 10.0)
    has_dispersion = True

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        self.theta_range = (-spec.theta_max, -spec.theta_min)
        self.start_theta = float(self.link(np.array([self.label_middle]))[0])

    def _clip_bound(self) -> float:
        return self.spec.residual_clip or self.label_high / self.scale

    def _curvature_bound(self) -> float:
        reach = self.scale * self.clip + self.label_high
        return min(1.0 / self.spec.theta_min**2, reach**2) / self.scale

    def _largest_number(self) -> float:
        return self.clip + 2.0 * self.label_high / self.scale  # the mean is at most phi L + k_y

    def cumulant(self, theta: FloatVector) -> FloatVector:
        return -np.log(-theta)

    def variance(self, theta: FloatVector) -> FloatVector:
        return theta**-2.0

    def _mean(self, theta: FloatVector) -> FloatVector:
        return -1.0 / theta

    def link(self, mean: FloatVector) -> FloatVector:
        """-1 / mean, inside the range of scores."""
        return self.clamp(-1.0 / np.maximum(mean, _SMALLEST))

    def path_slopes(self) -> tuple[float, float]:
        """Over all rows the mean square of the labels, for means up to a third of the largest."""
        usual = self.spec.weight_max / self.scale
        return usual, (self.label_high / 3.0) ** 2 * usual

    def published_terms(self) -> tuple[float, float]:
        """Not in the paper: a slope of one, and the declared range."""
        return 1.0, self.label_bound
