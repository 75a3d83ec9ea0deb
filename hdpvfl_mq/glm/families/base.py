"""What every loss must answer: domain, link, residual, and the two constants noise depends on.

It owns the clamp before and the clip after the residual and the range labels are clipped to; it
knows no formula of a particular loss and nothing of noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

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
    # Where descent starts: for positive labels at the middle of their declared range, else at 0.
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
        self.swing = self._largest_swing() * spec.weight_max

    @abstractmethod
    def _clip_bound(self) -> float:
        """L for one row of weight 1."""

    @abstractmethod
    def _curvature_bound(self) -> float:
        """Beta for one row of weight 1: the Lipschitz constant of the clipped residual."""

    @abstractmethod
    def _largest_number(self) -> float:
        """How large numbers get where the clipped residual still moves, for one row of weight 1.

        *Bound*: on abs(theta) times the slope of the residual, and on every number its formula
        passes through. Roundings are relative to them.
        """

    def _largest_swing(self) -> float:
        """A smaller bound on abs(theta) times the slope, where the family knows one."""
        return self._largest_number()

    @abstractmethod
    def _loss(self, theta: FloatVector, y: FloatVector) -> FloatVector: ...

    @abstractmethod
    def _residual(self, theta: FloatVector, y: FloatVector) -> FloatVector: ...

    @abstractmethod
    def _slope(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The derivative of `_residual` by theta, one-sided at a kink."""

    @abstractmethod
    def _mean(self, theta: FloatVector) -> FloatVector: ...

    @abstractmethod
    def link(self, mean: FloatVector) -> FloatVector:
        """The score whose `mean` this is, inside the range of scores."""

    @abstractmethod
    def typical_slope(self) -> float:
        """A public guess at the slope of the residual around a fit, for one row of weight 1.

        It decides how well the one-round method learns, never how private it is.
        """

    @abstractmethod
    def path_slopes(self) -> tuple[float, float]:
        """The slopes of the residual from start to optimum, over all rows: (usual, steepest).

        Public guesses for descent without privacy, sample weights included. The steepest decides
        how long a step may be, and the usual how many steps it then takes.
        """

    @abstractmethod
    def published_terms(self) -> tuple[float, float]:
        """beta_y and k_y: what Lemma 3 of the paper takes for the labels (docs/privacy.md)."""

    @abstractmethod
    def reference(self) -> Any:
        """scikit-learn's model of this loss, not yet fitted: what a run is compared with."""

    def rounding(self, score_norm: float) -> float:
        """How far roundings can part the residuals of one row in two runs of equal scores.

        *Bound*: the own score, of weights of this norm, is off by half of SCORE_ROUNDING times the
        norm. Adding what was received and the offset rounds twice, each time by 2^-53 of a number
        of at most abs(theta) + offset_max; what was received is the same in both runs. The residual
        moves by its slope times that, and the slope times abs(theta) is at most the swing. Its
        formula has at most 12 roundings of numbers of at most the magnitude.
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
        """The positive label to start from when residuals are not clipped and steps are long."""
        return self.label_middle

    @property
    def is_zero_legal(self) -> bool:
        """Whether a score of zero lies in the range of scores, so that weights may be zero."""
        return self.theta_range[0] <= 0.0 <= self.theta_range[1]

    def clamp(self, theta: FloatVector) -> FloatVector:
        """Bring every score into the range where the formulas are finite, NaN included.

        A score is never NaN, since what is received is range-checked; were it, a run must not
        stop because of a value.
        """
        low, high = self.theta_range
        return np.fmin(np.fmax(theta, low), high)

    def loss(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The loss of every row, before clipping; y as `encode` gives it."""
        return self._loss(self.clamp(theta), y)

    def residual(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The derivative of the loss by theta, in [-clip, clip] for every theta."""
        return np.clip(self._residual(self.clamp(theta), y), -self.clip, self.clip)

    def curvature(self, theta: FloatVector, y: FloatVector) -> FloatVector:
        """The derivative of the clipped residual by theta, one-sided at a kink.

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
        """How fast `mean` rises with theta where it has this value; a difference quotient."""
        theta = float(self.link(np.array([mean]))[0])
        step = 1e-4 * max(1.0, abs(theta))
        below, above = self.mean(np.array([theta - step, theta + step]))
        return float(above - below) / (2.0 * step)

    def release_bound(self, k: float) -> float:
        """How far one replaced row moves its own residual, when the active weights have norm k.

        *Bound*: twice the residual's bound, unless the family knows better.
        """
        del k
        return 2.0 * self.residual_bound

    def encode(self, y: FloatVector) -> FloatVector:
        """Labels as the formulas take them."""
        return self.coded(np.asarray(y, dtype=np.float64))

    def coded(self, y: FloatVector) -> FloatVector:
        """Every number brought to the declared range, NaN included: no label is ever refused here.

        A refusal at this point would tell whoever chose the loss something about a row. Labels
        are checked against the kind their own party declares, when its data are prepared.
        """
        return np.fmin(np.fmax(y, self.label_low), self.label_high)
