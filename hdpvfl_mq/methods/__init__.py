"""Methods: one package each, with its plan and, where it has them, bound and fit.

It owns which package implements which variant of `schemas.methods.Method`. To add a method, add a
variant there, a package and a line here, and a module and a line in parties/rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.methods.descent.plan import plan_descent, prediction_after_descent
from hdpvfl_mq.methods.prediction.plan import plan_prediction, prediction_again
from hdpvfl_mq.methods.private_model.plan import (
    plan_private_model,
    prediction_after_private_model,
)
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.methods.scoring.plan import plan_scoring, prediction_after_scoring
from schemas.config import RunManifest
from schemas.methods import Descent, Prediction, PrivateModel, Scoring


@dataclass(frozen=True)
class Planned:
    """Functions of a method's package: the plan of a run, and the prediction after it."""

    plan: Callable[[RunManifest, Any, int], RunPlan]
    prediction: Callable[[RunManifest, Any], Prediction]


PLANS: Mapping[type, Planned] = {
    Descent: Planned(plan_descent, prediction_after_descent),
    PrivateModel: Planned(plan_private_model, prediction_after_private_model),
    Prediction: Planned(plan_prediction, prediction_again),
    Scoring: Planned(plan_scoring, prediction_after_scoring),
}


def plan_run(manifest: RunManifest, rows: int) -> RunPlan:
    """Derive the plan; RefusedError if the privacy argument does not hold for these settings.

    Numbers of a manifest come from others: one that overflows here must not stop a party.
    """
    try:
        return PLANS[type(manifest.method)].plan(manifest, manifest.method, rows)
    except (ArithmeticError, ValueError) as beyond:
        raise RefusedError("numbers of the manifest are too large or too small to plan") from beyond


def prediction_of(trained: RunManifest) -> Prediction:
    """The method that scores rows with the passive parties' weights after a run."""
    return PLANS[type(trained.method)].prediction(trained, trained.method)
