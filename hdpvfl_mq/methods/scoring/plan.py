"""The plan of a scoring session: the cost of a passive party's scores to the scored people.

It owns bound and noise of one score; it knows no model. Weights are private already, so a training
row that is not scored pays nothing, and the ledger reserves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.plan import NoisePlan, fit_noise, plan_disclosed, plan_silent
from schemas.config import RunManifest
from schemas.ids import PartyRole
from schemas.methods import Prediction, Scoring

_EXPONENT = -9  # of the grid of noised scores, which B is rounded up to


@dataclass(frozen=True, kw_only=True)
class ScoringPlan(RunPlan):
    """One round that lasts for the whole session; its releases are answers to queries."""

    method: Scoring

    @property
    def is_sealed(self) -> bool:
        """False: a session sends no shares, and seals each of its answers."""
        return False

    @property
    def received_clip(self) -> float:
        """Infinite: a passive party learns nothing from received values, so it clips nothing."""
        return math.inf

    def settings_of(self, role: PartyRole) -> Mapping[str, float]:
        """None: nothing is learnt."""
        return {}

    @property
    def score_bound(self) -> float:
        """B, in standard deviations of a score, on the grid of noised scores."""
        return math.ceil(self.method.score_bound * 2.0**-_EXPONENT) * 2.0**_EXPONENT

    @property
    def mu2_units(self) -> int:
        """The cost of one score to its person; 0 if the score is disclosed."""
        return self.passive_noise.mu2_cumulative[0]

    def releases_of(self, role: PartyRole) -> dict[str, NoisePlan]:
        """The plan of scores for a passive party."""
        return {} if role == "active" else {"score": self.passive_noise}

    def spent_by(self, role: PartyRole) -> Spent:
        """Nothing of the data set's budget: the account of scored people counts these costs."""
        return Spent()


def plan_scoring(manifest: RunManifest, method: Scoring, rows: int) -> ScoringPlan:
    """Derive the plan.

    *Bound.* Given private weights, a noised score moves by 2 B when its person's row is replaced,
    and no other score moves.
    """
    plan = ScoringPlan(
        manifest=manifest,
        rows=rows,
        schedule=Schedule(rows, rows, 1),
        family=family(manifest.loss),
        active_noise=plan_silent(),
        passive_noise=plan_disclosed(rows),
        method=method,
    )
    if manifest.budget is None:
        return plan
    bound = plan.score_bound
    square = np.array([(2.0 * bound) ** 2 * (1.0 + 2.0**-50)])
    one = np.array([1], dtype=np.int64)
    noise = fit_noise(square, one, _EXPONENT, manifest.budget, bound)
    return replace(plan, passive_noise=noise)


def prediction_after_scoring(manifest: RunManifest, method: Scoring) -> Prediction:
    """Always refused: a scoring session leaves no weights to predict with."""
    raise SettingsError("a scoring session leaves no model to predict with")
