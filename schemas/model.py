"""Which loss and which penalty a run minimises: names, declared ranges and bounds.

It owns the fields a manifest states about the model and their limits; it knows no formula. Ranges
are declared here and never read off the data, because a range that was read off the data would
reveal something about a row.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from schemas.base import NonNegative, Positive, Strict

LossName = Literal[
    "logistic",
    "least_squares",
    "huber",
    "squared_hinge",
    "poisson",
    "gamma",
    "gamma_canonical",
    "normal",
    "bernoulli",
]
# What labels are: two classes, any number, counts from 0, or numbers above 0.
LabelKind = Literal["binary", "real", "count", "positive"]
PenaltyName = Literal["none", "l2", "l1", "elastic_net"]

# Rounding errors are relative to labels, and those of one row must not hide another row.
LABEL_MAX = 1e9


def _bounded(label: float) -> float:
    if abs(label) > LABEL_MAX:
        raise ValueError(
            f"must lie within +-{LABEL_MAX:g}: divide the labels by data.label_scale first"
        )
    return label


_LabelBound = Annotated[float, AfterValidator(_bounded), Field(ge=-LABEL_MAX, le=LABEL_MAX)]
_Dispersion = Annotated[float, Field(ge=1e-6, le=1e6)]
_Theta = Annotated[float, Field(ge=1e-9, le=1e9)]
_WeightMax = Annotated[float, Field(gt=0.0, le=1e6)]
_OffsetMax = Annotated[float, Field(ge=0.0, le=100.0)]


class LossSpec(Strict):
    """A loss with everything its sensitivity depends on.

    `residual_clip` is L; None takes the loss's own bound, or the published default if it has none.
    `label_low` and `label_high` are the range labels are clipped to; None takes the loss's default.
    `huber_c` belongs to huber. `theta_min` and `theta_max` belong to gamma_canonical: both are
    positive, and theta lies in [-theta_max, -theta_min].
    """

    name: LossName = "logistic"
    residual_clip: Positive | None = None
    label_low: _LabelBound | None = None
    label_high: _LabelBound | None = None
    dispersion: _Dispersion = 1.0
    huber_c: Positive = 1.35
    theta_min: _Theta = 0.05
    theta_max: _Theta = 100.0
    weight_max: _WeightMax = 1.0
    offset_max: _OffsetMax = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        low, high = self.label_low, self.label_high
        if low is not None and high is not None and low >= high:
            raise ValueError("label_low must lie below label_high")
        if self.theta_min >= self.theta_max:
            raise ValueError("theta_min must lie below theta_max")
        return self


class PenaltySpec(Strict):
    """A penalty: strength is lambda, mixing the elastic net's alpha, the weight of its l2 part.

    `none` uses neither; only the elastic net uses `mixing`.
    """

    name: PenaltyName = "l2"
    strength: NonNegative = 1e-4
    mixing: NonNegative = 1.0
