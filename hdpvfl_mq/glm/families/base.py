"""The interface of every loss: domain, link, residual, and the two constants that set the noise.

It owns the clamp before the residual, the clip after it and the range that labels are clipped to;
it knows no formula of a particular loss and nothing of noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.block import SCORE_ROUNDING
from schemas.model import LabelKind, LossName, LossSpec

# exp(600) times any declared label over any declared dispersion is still a finite double.
EXPONENT_LIMIT = 600.0
# The square of this is a finite double.
SCORE_LIMIT = 1e150


class Family(ABC):
    """One loss of theta = x'w and a label y, convex and differentiable in theta.

    `residual` is h = d loss / d theta, clipped to [-L, L]; clipping keeps it monotone, so it is
    still the derivative of a convex loss. `loss` is the loss before clipping.
    """

    name: ClassVar[LossName]
    label_kind: ClassVar[LabelKind]
    default_range: ClassVar[tuple[float, float]]
    theta_range: tuple[float, float] = (-SCORE_LIMIT, SCORE_LIMIT)
    # Descent starts at the middle of the declared range of positive labels, else at 0.
    start_theta: float = 0.0
    # Whether mean(theta) is the logistic sigmoid of theta.
    is_logit: ClassVar[bool] = False
    # Whether mean(theta) is exp(theta).
    is_log: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = False

    def __init__(self, spec: LossSpec) -> None:
        if spec.dispersion != 1.0 and not self.has_dispersion:
            raise SettingsError(f"{self.name} has no dispersion: leave it at 1")
        self.spec = spec
        low, high = self.default_range
        self.label_low = low if spec.label_low is None else spec.label_low
        self.label_high = high if spec.label_high is None else spec.label_high
        if self.label_low >= self.label_high:
            raise SettingsError(f"{self.name}: label_low must lie below label_high")
        if self.label_kind == "positive" and self.label_low <= 0.0:
            raise SettingsError(f"{self.name}: label_low must be positive")
        self.clip = self._clip_bound()
        self.residual_bound = self.clip * spec.weight_max
        self.smoothness = self._curvature_bound() * spec.weight_max
        self.magnitude = self._largest_number() * spec.weight_max

    @abstractmethod
    def _clip_bound(self) -> float:
        """L for one row of weight 1."""

    @abstractmethod
    def _curvature_bound(self) -> float:
        """Beta for one row of weight 1: the Lipschitz constant of the clipped residual."""

    @abstractmethod
    def _largest_number(self) -> float:
        """The largest number in the formula where the clipped residual varies, at row weight 1.

        *Bound*: on abs(theta) times the slope of the residual, and on every intermediate number of
        its formula. Rounding errors are relative to these numbers.
        """

    @abstractmethod
    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector: ...

    @abstractmethod
    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector: ...

    @abstractmethod
    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The derivative of `_residual` with respect to theta, one-sided at a kink."""

    @abstractmethod
    def _mean(self, theta: FloatVector) -> FloatVector: ...

    @abstractmethod
    def link(self, mean: FloatVector) -> FloatVector:
        """The score with this `mean`, clamped to the range of scores."""

    @abstractmethod
    def path_slopes(self) -> tuple[float, float]:
        """The slopes of the residual from start to optimum, over all rows: (usual, steepest).

        Public guesses for descent without privacy, sample weights included. The steepest slope
        limits the step size, and the usual slope determines how many steps are needed.
        """

    @abstractmethod
    def published_terms(self) -> tuple[float, float]:
        """beta_y and k_y: the label terms of Lemma 3 of the paper (docs/privacy.md)."""

    def rounding(self, score_norm: float) -> float:
        """How far rounding can separate the residuals of one row in two runs of equal scores.

        *Bound*: the party's own score, for weights of this norm, is off by half of SCORE_ROUNDING
        times the norm. Adding the received scores and the offset rounds twice, each time by 2^-53
        of a number of at most abs(theta) + offset_max; received scores are the same in both runs.
        The residual moves by its slope times that error, and the slope times abs(theta) is at most
        the magnitude. Its formula has at most 12 roundings of such numbers.
        """
        reach = self.magnitude + self.smoothness * self.spec.offset_max
        return SCORE_ROUNDING * self.smoothness * score_norm + 2.0**-48 * reach

    @property
    def label_bound(self) -> float:
        """The largest absolute value a label may have."""
        return max(abs(self.label_low), abs(self.label_high))

    @property
    def label_middle(self) -> float:
        """The geometric middle of the range of positive labels: where descent starts."""
        return math.sqrt(self.label_low * self.label_high)

    @property
    def calm_label(self) -> float:
        """The positive label where unclipped descent with long steps starts."""
        return self.label_middle

    @property
    def is_zero_legal(self) -> bool:
        """Whether the range of scores contains zero, so that weights may be zero."""
        return self.theta_range[0] <= 0.0 <= self.theta_range[1]

    def clamp(self, theta: FloatVector) -> FloatVector:
        """Clamp every score, NaN included, to the range where the formulas are finite.

        A score is never NaN, since received values are range-checked. If one were, the run must
        still not stop because of a value.
        """
        low, high = self.theta_range
        return np.fmin(np.fmax(theta, low), high)

    def loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The loss of every row, before clipping; y comes from `encode`."""
        return self._loss(self.clamp(theta), y)

    def residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The derivative of the loss with respect to theta, in [-clip, clip] for every theta."""
        return np.clip(self._residual(self.clamp(theta), y), -self.clip, self.clip)

    def curvature(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The derivative of the clipped residual with respect to theta, one-sided at a kink.

        *Bound*: between 0 and the smoothness; 0 where the residual is clipped.
        """
        inside = self.clamp(theta)
        free = (inside == theta) & (np.abs(self._residual(inside, y)) <= self.clip)
        return np.where(free, self._slope(inside, y), 0.0)

    def mean(self, theta: FloatVector) -> FloatVector:
        """The inverse link: the expected label, or the probability of the upper of two classes."""
        return self._mean(self.clamp(theta))

    @property
    def mean_range(self) -> tuple[float, float]:
        """The declared range of labels, in the units of `mean`: 0 and 1 for two classes."""
        return (0.0, 1.0) if self.label_kind == "binary" else (self.label_low, self.label_high)

    def as_mean(self, y: FloatVector) -> FloatVector:
        """Encoded labels in the units of `mean`."""
        return np.where(y > 0.0, 1.0, 0.0) if self.label_kind == "binary" else y

    def mean_slope(self, mean: float) -> float:
        """The slope of `mean` in theta where it has this value, by a difference quotient."""
        theta = float(self.link(np.array([mean]))[0])
        step = 1e-4 * max(1.0, abs(theta))
        below, above = self.mean(np.array([theta - step, theta + step]))
        return float(above - below) / (2.0 * step)

    def release_bound(self, k: float) -> float:
        """How far one replaced row moves its own residual if the active weights have norm k.

        *Bound*: twice the residual's bound, unless the family has a smaller one.
        """
        del k
        return 2.0 * self.residual_bound

    def encode(self, y: FloatVector) -> FloatVector:
        """Labels in the form that the formulas need."""
        return self.coded(np.asarray(y, dtype=np.float64))

    def coded(self, y: FloatVector) -> FloatVector:
        """Clip every number, NaN included, to the declared range; no label is refused here.

        A refusal here would reveal something about a row to the party that chose the loss. Data
        preparation checks labels against the kind that their own party declares.
        """
        return np.fmin(np.fmax(y, self.label_low), self.label_high)
