"""Methods: one package each, with its plan (noise of both sides), its bound and its fit.

It owns which plan belongs to which variant of `schemas.methods.Method`. To add a method: a variant
there, a package here, a module in parties/rounds, and a line in each of the two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hdpvfl_mq.methods.descent.plan import plan_descent
from hdpvfl_mq.methods.one_round.plan import plan_one_round
from hdpvfl_mq.methods.prediction.plan import plan_prediction
from hdpvfl_mq.methods.private_model.plan import plan_private_model
from hdpvfl_mq.methods.run_plan import RunPlan
from schemas.config import RunManifest
from schemas.methods import Descent, OneRound, Prediction, PrivateModel

PLANS: Mapping[type, Callable[[RunManifest, Any, int], RunPlan]] = {
    Descent: plan_descent,
    OneRound: plan_one_round,
    PrivateModel: plan_private_model,
    Prediction: plan_prediction,
}


def plan_run(manifest: RunManifest, rows: int) -> RunPlan:
    """Derive the plan; RefusedError where the privacy argument does not hold for these settings."""
    return PLANS[type(manifest.method)](manifest, manifest.method, rows)
