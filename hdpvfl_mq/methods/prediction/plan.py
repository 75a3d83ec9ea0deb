"""The plan of a prediction: the passive parties release scores once, the active party nothing.

It owns grid and noise of the scores and what an earlier run proved about its weights; it knows no
model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.methods.one_round.plan import one_round_terms, passive_bound
from hdpvfl_mq.methods.prediction.bound import prediction_square
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.plan import FINEST_EXPONENT, NoisePlan, fit_noise, plan_none, plan_silent
from schemas.config import RunManifest
from schemas.methods import Descent, OneRound, Prediction, PrivateModel
from schemas.privacy import Budget


@dataclass(frozen=True, kw_only=True)
class PredictionPlan(RunPlan):
    """A plan of one round in which nothing is learnt."""

    @property
    def is_sealed(self) -> bool:
        """Whether shares are encrypted for the active party alone, because they have no noise."""
        return self.passive_noise.guarantee == "none"

    @property
    def received_clip(self) -> float:
        """Nothing is received, so nothing is clipped."""
        return math.inf


def plan_prediction(manifest: RunManifest, method: Prediction, rows: int) -> PredictionPlan:
    """Derive the plan; exact scores where the manifest has no budget."""
    if manifest.budget is None:
        passive = plan_none(1)
    else:
        passive = plan_scores(
            rows, distance=method.distance, radius=method.weight_norm, budget=manifest.budget
        )
    return PredictionPlan(
        manifest=manifest,
        rows=rows,
        schedule=Schedule(rows, rows, 1),
        family=family(manifest.loss),
        active_noise=plan_silent(),
        passive_noise=passive,
    )


def prediction_of(trained: RunManifest, rows: int) -> Prediction:
    """What bounds the passive parties' weights after a run over so many rows.

    *Bound.* Of the distance: what the fit of the one-round method proves; 0 for weights that are
    private themselves; elsewhere the ball's 2k.
    """
    match trained.method:
        case OneRound() as method:
            terms = one_round_terms(trained, method, rows)[1]
            distance = passive_bound(rows, terms).d_model()
            return Prediction(
                model_run=trained.run, weight_norm=terms.weight_norm, distance=distance
            )
        case PrivateModel(weight_norm=norm):
            return Prediction(model_run=trained.run, weight_norm=norm, distance=0.0)
        case Descent(passive=side):
            norm = side.weight_norm
            return Prediction(model_run=trained.run, weight_norm=norm, distance=2.0 * norm)
        case Prediction() as method:
            return method


def plan_scores(rows: int, *, distance: float, radius: float, budget: Budget) -> NoisePlan:
    """Plan one release of the scores of `rows` distinct rows, with weights learnt before.

    *Guarantee.* Within the budget for every row the weights were learnt from and every row scored.
    """
    plain = prediction_square(rows, distance=distance, radius=radius, grid=0.0)
    exponent = math.ceil(math.log2(2.0 * radius))
    while exponent > FINEST_EXPONENT and (
        prediction_square(rows, distance=distance, radius=radius, grid=2.0**exponent)
        >= plain * 1.001**2
    ):
        exponent -= 1
    square = prediction_square(rows, distance=distance, radius=radius, grid=2.0**exponent)
    values = np.array([rows], dtype=np.int64)
    return fit_noise(np.array([square]), values, exponent, budget, radius)
