"""The plan of a prediction: the passive parties release scores once, the active party nothing.

It owns grid and noise of the scores; it knows no model. The bound on an earlier run's weights is
next to the plan of that run's method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.methods.prediction.bound import prediction_square
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.plan import FINEST_EXPONENT, NoisePlan, fit_noise, plan_none, plan_silent
from schemas.config import RunManifest
from schemas.ids import PartyRole
from schemas.methods import Prediction
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
        """Infinite: a passive party receives nothing, so it clips nothing."""
        return math.inf

    def settings_of(self, role: PartyRole) -> Mapping[str, float]:
        """None: nothing is learnt."""
        return {}


def plan_prediction(manifest: RunManifest, method: Prediction, rows: int) -> PredictionPlan:
    """Derive the plan; scores are exact if the manifest has no budget."""
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


def prediction_again(manifest: RunManifest, method: Prediction) -> Prediction:
    """A prediction learns nothing, so the weights are those of the run that trained them."""
    return method


def plan_scores(rows: int, *, distance: float, radius: float, budget: Budget) -> NoisePlan:
    """Plan one release of the scores of `rows` distinct rows, with weights of an earlier run.

    *Guarantee.* It is within the budget for every training row and every scored row.
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
