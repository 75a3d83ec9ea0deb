"""Gamma with a log link: positive labels whose spread grows with their mean.

It owns the formula; it knows nothing of clipping or of noise. It is the default for positive
labels, since every score is legal under a log link.
"""

from __future__ import annotations

import math

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families.base import EXPONENT_LIMIT, Family
from schemas.model import LossSpec


class Gamma(Family):
    """loss = (theta + y exp(-theta)) / phi, h = (1 - y exp(-theta)) / phi.

    *Domain*: y > 0, clipped to [y_min, k_y]. *Link*: log. *Bound*: clipped at 2 / phi unless
    stated, that is at labels of three times the mean; where abs(h) <= L, y exp(-theta) is at
    most phi L + 1, so the smoothness is (phi L + 1) / phi.
    """

    name = "gamma"
    label_kind = "positive"
    is_log = True
    default_range = (0.01, 10.0)
    theta_range = (-EXPONENT_LIMIT, EXPONENT_LIMIT)
    has_dispersion = True

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        self.start_theta = math.log(self.label_middle)

    def _clip_bound(self) -> float:
        return self.spec.residual_clip or 2.0 / self.spec.dispersion

    def _curvature_bound(self) -> float:
        phi = self.spec.dispersion
        return (phi * self.clip + 1.0) / phi

    def _largest_number(self) -> float:
        """With v = y exp(-theta) at most phi L + 1, abs(theta) v is at most v (log y + log v)."""
        v = self.spec.dispersion * self.clip + 1.0
        logs = max(abs(math.log(self.label_low)), abs(math.log(self.label_high))) + math.log(v)
        return (1.0 + v * (1.0 + logs)) / self.spec.dispersion

    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return (theta + y * np.exp(-theta)) / self.spec.dispersion

    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return (1.0 - y * np.exp(-theta)) / self.spec.dispersion

    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        return y * np.exp(-theta) / self.spec.dispersion

    def _mean(self, theta: FloatVector) -> FloatVector:
        return np.exp(theta)

    def link(self, mean: FloatVector) -> FloatVector:
        """log(mean), inside the range of scores."""
        return self.clamp(np.log(np.maximum(mean, np.finfo(np.float64).tiny)))

    def path_slopes(self) -> tuple[float, float]:
        """Over all rows 1 / phi at the fit, and more only below it; the bound is far too large."""
        slope = self.spec.weight_max / self.spec.dispersion
        return slope, slope

    @property
    def calm_label(self) -> float:
        """The largest label: at this mean the slope y / mean is at most 1, at smaller ones more."""
        return self.label_high

    def published_terms(self) -> tuple[float, float]:
        """Not in the paper: a slope of one, and the declared range."""
        return 1.0, self.label_bound
