"""The plan of the private model: one release of labels, and three of each passive party.

It owns how the budget is split and which rows are training rows; it knows no data. The plan follows
from the manifest and the number of common rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.glm.families import Family, family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.methods.private_model.bound import gram_move, moments_move, on_grid
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.bounded_laws import label_noise, number_noise
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.plan import (
    NoisePlan,
    Part,
    fit_noise,
    fit_together,
    plan_bounded,
    plan_disclosed,
)
from hdpvfl_mq.privacy.pure import PureUnits, mu_beside
from schemas.config import RunManifest
from schemas.ids import PartyRole
from schemas.methods import Prediction, PrivateModel
from schemas.privacy import Budget

ROWS_MIN = 10
# z and C are multiples of 2^Z_EXPONENT.
Z_EXPONENT = -16
_CLIP_MAX = 2.0**16
# Numbers in [-1, 1] and [-B, B] are released on this grid; B is rounded up to it.
_ROW_EXPONENT = -9


@dataclass(frozen=True, kw_only=True)
class PrivateModelPlan(RunPlan):
    """Adds the clip of received values, and the roles of rows, to the plan."""

    method: PrivateModel
    clip: float

    @property
    def received_clip(self) -> float:
        """C: a passive party clips received values to +- C, in units of half the label range."""
        return self.clip

    @property
    def is_sealed(self) -> bool:
        """Whether shares are encrypted for the active party, because scores are exact."""
        return self.passive_noise.disclosed_rows > 0

    def settings_of(self, role: PartyRole) -> Mapping[str, float]:
        """Weight norm and clip of a passive party; the active party has neither."""
        if role == "active":
            return {}
        return {"weight_norm": self.method.weight_norm, "received_clip": self.clip}

    @property
    def score_bound(self) -> float:
        """B, in standard deviations of a score."""
        return score_bound(self.method)

    @property
    def learnt_rows(self) -> slice:
        """The training rows: the first of the common rows, which are sorted by a hash."""
        return slice(0, self.rows - self.method.held_out_rows)

    @property
    def held_out(self) -> slice:
        """The test rows: nothing is learnt from them."""
        return slice(self.learnt_rows.stop, self.rows)

    @property
    def scored_rows(self) -> tuple[slice, ...]:
        """The rows whose scores leave: all, or the first training rows and the held-out rows."""
        if not self.is_sealed:
            return (slice(0, self.rows),)
        first = min(self.method.disclosed_rows, self.learnt_rows.stop)
        return (slice(0, first), self.held_out)

    def residual_count(self, round_: int) -> int:
        """Number of released labels: one per training row."""
        return self.rows - self.method.held_out_rows

    def share_count(self, round_: int) -> int:
        """Number of released scores."""
        return sum(rows.stop - rows.start for rows in self.scored_rows)


def plan_private_model(manifest: RunManifest, method: PrivateModel, rows: int) -> PrivateModelPlan:
    """Derive the plan; RefusedError if the privacy argument does not hold."""
    learnt = rows - method.held_out_rows
    if manifest.budget is None or learnt < ROWS_MIN:
        raise RefusedError(f"method private_model needs a budget and {ROWS_MIN} rows to learn from")
    loss = family(manifest.loss)
    active = _labels(method, loss, learnt, manifest.budget)
    clip = _clip(method, active)
    inner, share = _passive(method, rows, clip, manifest.budget)
    return PrivateModelPlan(
        manifest=manifest,
        rows=rows,
        schedule=Schedule(rows, rows, 1),
        family=loss,
        active_noise=active,
        passive_noise=share,
        inner_noise=MappingProxyType(inner),
        method=method,
        clip=clip,
    )


def prediction_after_private_model(manifest: RunManifest, method: PrivateModel) -> Prediction:
    """Scores with private weights.

    *Bound*: given the noised statistics, no row moves the weights.
    """
    return Prediction(model_run=manifest.run, weight_norm=method.weight_norm, distance=0.0)


def cost_of(manifest: RunManifest, role: PartyRole) -> tuple[float, PureUnits]:
    """The cost of a sound run to a party, before rows are known: mu and pure epsilons."""
    budget, method = manifest.budget, manifest.method
    assert budget is not None
    if not isinstance(method, PrivateModel) or method.noise == "gaussian":
        return mu_of(budget.epsilon, budget.delta), ()
    if role == "active":
        return 0.0, (label_law(family(manifest.loss), budget.epsilon).pure_units,)
    if method.disclosed_rows:
        return mu_of(budget.epsilon, budget.delta), ()
    pure = (score_law(method, budget.epsilon).pure_units,)
    return mu_beside(budget.epsilon, budget.delta, pure), pure


def score_bound(method: PrivateModel) -> float:
    """B on the grid of scores, rounded up."""
    return math.ceil(method.score_bound * 2.0**-_ROW_EXPONENT) * 2.0**_ROW_EXPONENT


def _labels(method: PrivateModel, loss: Family, rows: int, budget: Budget) -> NoisePlan:
    if method.noise == "bounded":
        return plan_bounded(label_law(loss, budget.epsilon), budget, mean_square=1.0)
    values = np.array([rows], dtype=np.int64)
    return fit_noise(np.array([4.0]), values, _ROW_EXPONENT, budget, 1.0)


def label_law(loss: Family, epsilon: float) -> BoundedNoise:
    """Randomised response for two classes, else the better law for a number, on [-1, 1]."""
    if loss.label_kind == "binary":
        return label_noise(epsilon, low=-1.0, high=1.0)
    return number_noise(-1.0, 1.0, epsilon)


def score_law(method: PrivateModel, epsilon: float) -> BoundedNoise:
    """The law of scores, which lie about one standard deviation from zero."""
    bound = score_bound(method)
    epsilon *= method.pure_share
    return number_noise(-bound, bound, epsilon, mean_square=_score_square(bound))


def _score_square(bound: float) -> float:
    return min(1.0, bound**-2)


def _clip(method: PrivateModel, labels: NoisePlan) -> float:
    if labels.bounded is None:
        clip = 1.0 + method.received_clip * labels.noise_std
    else:
        # A label with bounded noise has a largest absolute value; centring adds half the range.
        ends = labels.bounded.decode(np.array([0, labels.bounded.points - 1]))
        clip = float(np.abs(ends).max()) + 0.5
    clip = min(clip, _CLIP_MAX)
    return math.ceil(clip * 2.0**-Z_EXPONENT) * 2.0**Z_EXPONENT


def _passive(
    method: PrivateModel, rows: int, clip: float, budget: Budget
) -> tuple[dict[str, NoisePlan], NoisePlan]:
    """Plans of statistics and scores within one budget; disclosed scores use none of it."""
    learnt = rows - method.held_out_rows
    is_disclosed, is_bounded = method.disclosed_rows > 0, method.noise == "bounded"
    scores = 0.0 if is_disclosed or is_bounded else 1.0 - method.moments_share - method.gram_share
    split = method.moments_share + method.gram_share + scores
    parts = _statistics(method, learnt, clip, split)
    if is_disclosed:
        first = min(method.disclosed_rows, learnt)
        return fit_together(parts, budget), plan_disclosed(first + method.held_out_rows)
    bound = score_bound(method)
    if is_bounded:
        law = score_law(method, budget.epsilon)
        square = _score_square(bound)
        return (
            fit_together(parts, budget, pure=(law.pure_units,)),
            plan_bounded(law, budget, mean_square=square),
        )
    parts["share"] = Part(
        square=(2.0 * bound) ** 2 * (1.0 + 2.0**-50),
        values=rows,
        exponent=_ROW_EXPONENT,
        value_bound=bound,
        share=scores,
    )
    plans = fit_together(parts, budget)
    share = plans.pop("share")
    return plans, share


def _statistics(method: PrivateModel, learnt: int, clip: float, split: float) -> dict[str, Part]:
    """Moments and Gram matrix of the training rows; `split` is the sum of all shares."""
    columns = method.columns_max
    u_square, u_exponent = on_grid(moments_move(learnt, clip), math.sqrt(columns))
    g_square, g_exponent = on_grid(gram_move(learnt), float(columns))
    return {
        "moments": Part(
            square=u_square,
            values=columns,
            exponent=u_exponent,
            value_bound=clip,
            share=method.moments_share / split,
        ),
        "gram": Part(
            square=g_square,
            values=columns * (columns + 1) // 2,
            exponent=g_exponent,
            value_bound=1.0,
            share=method.gram_share / split,
            symmetric=True,
        ),
    }
