"""From noised statistics to weights: post-processing, so any rule is as private as any other.

It owns the ridge regression, which uses the noise of both statistics and the prior of the weights;
it sees no row. Scores are modelled as linear in the columns: X'(mean - y) / n is about
kappa X'X w / n, where kappa is the slope of the mean label at the released mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.row_blocks import summed
from hdpvfl_mq.methods.private_model.row_blocks import variance as variance_of
from hdpvfl_mq.methods.private_model.statistics import weight_grid
from schemas.privacy import SCALE_MAX, SCALE_MIN

# The mean label stays at least this share of the label range away from its ends.
_EDGE = 0.02
# Rows are not all at the mean: their average slope is smaller than the slope there.
AVERAGE_SLOPE = 0.85
# The eigenvalue of X'X / n that a forecast assumes.
_TYPICAL_DIRECTION = 0.1


@dataclass(frozen=True, kw_only=True)
class ReceivedLabels:
    """Summary of the released labels besides their product with the columns, in label units."""

    rows: int
    slope: float  # kappa, per unit of theta
    label_variance: float
    z_variance: float

    @classmethod
    def of(
        cls, family: Family, received: FloatVector, z: FloatVector, noise_std: float
    ) -> ReceivedLabels:
        """Estimate the mean label, the slope there and the labels' variance from the release."""
        low, high = family.mean_range
        mean = (low + high) / 2.0 - (high - low) / 2.0 * float(received.mean())
        slope, variance = slope_and_variance(
            family, mean, lambda: _variance(received) - noise_std**2
        )
        return cls(
            rows=len(received),
            slope=slope,
            label_variance=variance,
            z_variance=max(_variance(z), 1e-12),
        )


def slope_and_variance(
    family: Family, mean: float, variance: Callable[[], float]
) -> tuple[float, float]:
    """The slope of the mean label at `mean`, and the labels' variance, both in label units.

    The variance of two classes follows from their mean; `variance` estimates that of others.
    """
    low, high = family.mean_range
    half = (high - low) / 2.0
    edge = 2.0 * half * _EDGE
    mean = min(max(mean, low + edge), high - edge)
    slope = max(family.mean_slope(mean) / half, 1e-6)
    if family.label_kind == "binary":
        return slope, mean * (1.0 - mean) / half**2
    return slope, min(max(variance(), 0.01), 1.0)


def _variance(values: FloatVector) -> float:
    return float(variance_of(len(values), lambda rows: values[rows]))


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """X'z / n and X'X / n as released, and the standard deviations of their noise."""

    moments: FloatVector = field(repr=False)
    moments_std: float
    gram: NDArray[np.float64] = field(repr=False)
    gram_std: float  # on the diagonal


@dataclass(frozen=True, kw_only=True)
class PrivateWeights:
    """w~, its standard deviation by coordinate, and that of its scores: sqrt(w~'G w~)."""

    w: FloatVector = field(repr=False)
    std: FloatVector = field(repr=False)
    size: float


def private_weights(
    statistics: Statistics,
    received: ReceivedLabels,
    *,
    signal_share: float,
    variance_max: float,
    weight_norm: float,
) -> PrivateWeights:
    """The posterior mean of the weights under a Gaussian prior, direction by direction of G.

    Noise of G lies within +- `spread` in any direction, so its eigenvalues are floored there.
    """
    kappa = AVERAGE_SLOPE * received.slope
    prior = min(signal_share * received.label_variance / received.slope**2, variance_max)
    columns = len(statistics.moments)
    spread = statistics.gram_std * math.sqrt(columns / 2.0)
    values, basis = np.linalg.eigh(statistics.gram)
    g = np.maximum(values, spread + 1e-9)
    noise = (
        received.z_variance * g / received.rows
        + statistics.moments_std**2
        + (kappa * spread) ** 2 * prior
    )
    gain = kappa * g * prior / (kappa**2 * g**2 * prior + noise)
    w = basis @ (gain * (basis.T @ -statistics.moments))
    w *= min(1.0, weight_norm / max(float(np.linalg.norm(w)), 1e-300))
    w = weight_grid(w)
    left = prior * (1.0 - gain * kappa * g)
    size = math.sqrt(float((basis.T @ w) ** 2 @ g))
    return PrivateWeights(
        w=w,
        std=np.sqrt(np.maximum(basis**2 @ left, 0.0)),
        size=_few_bits(min(max(size, SCALE_MIN), SCALE_MAX)),
    )


def _few_bits(size: float) -> float:
    """Round to ten bits, which agree on machines that differ in the last bit."""
    mantissa, exponent = math.frexp(size)
    return math.ldexp(math.ceil(mantissa * 1024.0), exponent - 10)


def signal_kept(plan: PrivateModelPlan) -> float:
    """Forecast the share of a weight's prior variance that is learnt, from public numbers.

    It assumes labels spread evenly over their range, and an eigenvalue of X'X / n of one tenth.
    """
    low, high = plan.family.mean_range
    half = (high - low) / 2.0
    return _kept(plan, plan.family.mean_slope((low + high) / 2.0) / half, 1.0)


def signal_kept_of(plan: PrivateModelPlan, y: FloatVector) -> float:
    """The same forecast by the party that has the labels: rare ones carry less signal."""
    family = plan.family
    low, high = family.mean_range

    def inside(rows: slice) -> FloatVector:
        return np.clip(family.as_mean(y[rows]), low, high)

    def variance() -> float:
        return float(variance_of(len(y), inside)) / ((high - low) / 2.0) ** 2

    mean = float(summed(len(y), lambda rows: inside(rows).sum())) / len(y)
    return _kept(plan, *slope_and_variance(family, mean, variance))


def _kept(plan: PrivateModelPlan, slope: float, label_variance: float) -> float:
    method, noise_std = plan.method, plan.active_noise.noise_std
    prior = min(method.signal_share * label_variance / slope**2, method.weight_variance_max)
    signal = (AVERAGE_SLOPE * slope * _TYPICAL_DIRECTION) ** 2 * prior
    noise = plan.inner_noise["moments"].noise_std ** 2
    noise += (label_variance + noise_std**2) * _TYPICAL_DIRECTION / plan.rows
    return signal / (signal + noise)


def scores_kept(plan: PrivateModelPlan) -> float:
    """Forecast the share of a score's variance that remains under noise, from public numbers."""
    return 1.0 / (1.0 + plan.passive_noise.noise_std**2)
