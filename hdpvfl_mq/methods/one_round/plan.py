"""The plan of one round of exact minimisers: one release a side.

It owns how the rule's terms enter the bounds; it knows no data.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.schedule import Schedule
from hdpvfl_mq.methods.one_round.bound import (
    MinimiserActive,
    MinimiserPassive,
    minimiser_active_plan,
    minimiser_passive_plan,
)
from hdpvfl_mq.methods.one_round.rule import MinimiserTerms, active_terms, all_terms
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.plan import NoisePlan
from schemas.config import RunManifest
from schemas.methods import OneRound


@dataclass(frozen=True, kw_only=True)
class OneRoundPlan(RunPlan):
    """What one round adds: the public terms of both fits."""

    terms: MinimiserTerms

    @property
    def received_clip(self) -> float:
        """C, at which a passive party clips what it receives."""
        return self.terms.received_clip


def plan_one_round(manifest: RunManifest, method: OneRound, rows: int) -> OneRoundPlan:
    """Derive the plan; RefusedError where the privacy argument does not hold."""
    active, terms = one_round_terms(manifest, method, rows)
    assert manifest.budget is not None  # guarantee sound has one
    return OneRoundPlan(
        manifest=manifest,
        rows=rows,
        schedule=Schedule(rows, rows, 1),
        family=family(manifest.loss),
        active_noise=active,
        passive_noise=minimiser_passive_plan(passive_bound(rows, terms), manifest.budget),
        terms=terms,
    )


def one_round_terms(
    manifest: RunManifest, method: OneRound, rows: int
) -> tuple[NoisePlan, MinimiserTerms]:
    """The active party's noise, and the terms that follow from its width."""
    if manifest.budget is None:
        raise RefusedError("method one_round needs a budget")
    loss = family(manifest.loss)
    fitted = active_terms(method, rows, loss, intercept=manifest.intercept)
    active = minimiser_active_plan(
        MinimiserActive(
            rows=rows,
            residual_bound=loss.residual_bound,
            smoothness=loss.smoothness,
            strength=fitted.strength,
            own_release=loss.release_bound(method.feature_reach),
            intercept=manifest.intercept,
            error=fitted.error,
            rounding=fitted.rounding,
        ),
        manifest.budget,
    )
    passives = len(manifest.passive_parties)
    return active, all_terms(method, rows, loss, passives, fitted, noise_std=active.noise_std)


def passive_bound(rows: int, terms: MinimiserTerms) -> MinimiserPassive:
    """What bounds a passive party's release and its model."""
    return MinimiserPassive(
        rows=rows,
        clip_received=terms.received_clip,
        curvature=terms.curvature,
        strength=terms.passive_strength,
        weight_norm=terms.weight_norm,
        score_bound=terms.score_bound,
        error=terms.passive_error,
    )
