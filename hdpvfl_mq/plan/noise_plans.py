"""Both sides' noise, from the manifest and the number of rows, for every guarantee and method.

It owns how the constants of losses, penalties and step sizes enter the bounds of the privacy layer;
it knows no data. Everything here is public: each party computes the other side's noise too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hdpvfl_mq.glm.families import Family, family
from hdpvfl_mq.glm.minimiser import MinimiserRule, MinimiserTerms
from hdpvfl_mq.glm.schedule import Schedule, StepSize
from hdpvfl_mq.privacy.bounds import ActiveBounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.privacy.contraction import contraction
from hdpvfl_mq.privacy.minimiser import (
    MinimiserActive,
    MinimiserPassive,
    minimiser_active_plan,
    minimiser_passive_plan,
)
from hdpvfl_mq.privacy.plan import (
    NoisePlan,
    plan_none,
    plan_paper,
    plan_prediction,
    plan_silent,
    plan_sound,
)
from hdpvfl_mq.privacy.published import (
    paper_active_bounds,
    paper_passive_bounds,
    published_active,
    published_passive,
)
from schemas.config import PredictionSpec, RunManifest

# What the paper puts into Lemma 3 for each loss: beta_y and k_y (docs/privacy.md).
_PUBLISHED_LABEL_TERMS = {
    "logistic": (1.1, 1.0),
    "bernoulli": (1.1, 1.0),
    "least_squares": (2.0, 3.0),
    "normal": (1.0, 3.0),
    "squared_hinge": (2.0, 1.0),
}
# A run that really costs more than this is booked as costing infinitely much.
_EPSILON_BOOKABLE = 900.0


@dataclass(frozen=True)
class Sides:
    """Noise of the active and of every passive party, and what passive parties clip at."""

    active: NoisePlan
    passive: NoisePlan
    received_clip: float = math.inf
    terms: MinimiserTerms | None = None


def sides(manifest: RunManifest, schedule: Schedule, loss: Family) -> Sides:
    """Both sides of a run; RefusedError where the privacy argument does not hold."""
    if manifest.method == "prediction":
        return prediction_sides(manifest, schedule)
    if manifest.guarantee == "none":
        noise = plan_none(schedule.rounds)
        return Sides(noise, noise)
    if manifest.guarantee == "paper":
        return paper_sides(manifest, schedule, loss)
    if manifest.method == "minimiser":
        return minimiser_sides(manifest, schedule, loss)
    return descent_sides(manifest, schedule, loss)


def prediction_sides(manifest: RunManifest, schedule: Schedule) -> Sides:
    """The passive parties release scores once, the active party nothing."""
    assert manifest.prediction is not None
    if manifest.budget is None:
        return Sides(plan_silent(), plan_none(1))
    passive = plan_prediction(
        schedule.rows,
        distance=manifest.prediction.distance,
        radius=manifest.prediction.weight_norm,
        budget=manifest.budget,
    )
    return Sides(plan_silent(), passive)


def prediction_spec(trained: RunManifest, rows: int) -> PredictionSpec:
    """What bounds the passive parties' weights after a run over so many rows.

    *Bound.* Of the distance: what the fit of the one-round method proves; elsewhere the ball's 2k.
    """
    if trained.method != "minimiser":
        norm = trained.passive.weight_norm
        return PredictionSpec(model_run=trained.run, weight_norm=norm, distance=2.0 * norm)
    terms = minimiser_sides(trained, Schedule(rows, rows, 1), family(trained.loss)).terms
    assert terms is not None
    return PredictionSpec(
        model_run=trained.run,
        weight_norm=terms.weight_norm,
        distance=_minimiser_passive(rows, terms).d_model(),
    )


def minimiser_sides(manifest: RunManifest, schedule: Schedule, loss: Family) -> Sides:
    """One release a side, from exact minimisers."""
    assert manifest.budget is not None
    assert manifest.minimiser is not None
    rule = MinimiserRule(**manifest.minimiser.model_dump())
    rows, intercept = schedule.rows, manifest.active.intercept
    fitted = rule.active(rows, loss, intercept=intercept)
    active = minimiser_active_plan(
        MinimiserActive(
            rows=rows,
            residual_bound=loss.residual_bound,
            smoothness=loss.smoothness,
            strength=fitted.strength,
            own_release=loss.release_bound(rule.feature_reach),
            intercept=intercept,
            error=fitted.error,
        ),
        manifest.budget,
    )
    passives = len(manifest.passive_parties)
    terms = rule.terms(rows, loss, passives, fitted, noise_std=active.noise_std)
    passive = minimiser_passive_plan(_minimiser_passive(rows, terms), manifest.budget)
    return Sides(active, passive, terms.received_clip, terms)


def _minimiser_passive(rows: int, terms: MinimiserTerms) -> MinimiserPassive:
    return MinimiserPassive(
        rows=rows,
        clip_received=terms.received_clip,
        curvature=terms.curvature,
        strength=terms.passive_strength,
        weight_norm=terms.weight_norm,
        score_bound=terms.score_bound,
        error=terms.passive_error,
    )


def _bookable(plan: NoisePlan) -> NoisePlan:
    """The plan of a published run, infinite where its real epsilon is beyond every budget."""
    if plan.budget is None or plan.epsilon(plan.budget.delta) <= _EPSILON_BOOKABLE:
        return plan
    return replace(plan, mu2_cumulative=(), tau_cumulative=())


def step_size(manifest: RunManifest, eta: float) -> StepSize:
    """A side's step sizes under the manifest's decay."""
    return StepSize(eta, manifest.step_decay)


def _public(manifest: RunManifest, schedule: Schedule, eta: float) -> PublicSchedule:
    etas = tuple(step_size(manifest, eta).at(schedule.epoch(t)) for t in range(schedule.rounds))
    return PublicSchedule(schedule.batch_sizes, manifest.epochs, etas)


def _rho(
    manifest: RunManifest, etas: float | tuple[float, ...], beta: float | None, *, free: bool
) -> float:
    """The largest contraction factor of any round."""
    spec = manifest.penalty
    distinct = set(etas) if isinstance(etas, tuple) else {etas}
    return max(
        contraction(
            spec.name, eta, lam=spec.strength, alpha=spec.mixing, beta=beta, has_unpenalised=free
        )
        for eta in distinct
    )


def descent_sides(manifest: RunManifest, schedule: Schedule, loss: Family) -> Sides:
    """Descent with the sound recursion."""
    assert manifest.budget is not None
    assert manifest.passive.received_clip is not None
    may_skip = manifest.absence != "wait"
    side = manifest.active
    public = _public(manifest, schedule, side.step_size)
    active_bounds = ActiveBounds(
        radius=side.weight_norm,
        residual_bound=loss.residual_bound,
        smoothness=loss.smoothness,
        rho=_rho(manifest, public.eta, loss.smoothness, free=side.intercept),
        local_steps=side.local_steps,
        own_release=loss.release_bound(side.weight_norm),
    )
    active = plan_sound(active_bounds, public, manifest.budget, value_bound=loss.residual_bound)
    clip = manifest.passive.received_clip * active.noise_std
    public = _public(manifest, schedule, manifest.passive.step_size)
    passive_bounds = PassiveBounds(
        radius=manifest.passive.weight_norm,
        clip_received=clip,
        rho=_rho(manifest, public.eta, None, free=False),
        may_skip=may_skip,
    )
    passive = plan_sound(
        passive_bounds, public, manifest.budget, value_bound=manifest.passive.weight_norm
    )
    return Sides(active, passive, clip)


def paper_sides(manifest: RunManifest, schedule: Schedule, loss: Family) -> Sides:
    """The published noise, as published; what it really costs is booked under sound bounds."""
    assert manifest.budget is not None
    side, spec = manifest.active, manifest.penalty
    beta_y, label_bound = _PUBLISHED_LABEL_TERMS.get(
        loss.name, (1.0, max(abs(loss.label_low), abs(loss.label_high)))
    )
    public = _public(manifest, schedule, side.step_size)
    active = plan_paper(
        paper_active_bounds(
            spec.name,
            public.eta,
            lam=spec.strength,
            alpha=spec.mixing,
            beta=loss.smoothness,
            radius=side.weight_norm,
            residual_bound=loss.residual_bound,
            has_unpenalised=side.intercept,
            local_steps=side.local_steps,
        ),
        public,
        manifest.budget,
        value_bound=loss.residual_bound,
        published=published_active(
            public,
            radius=side.weight_norm,
            residual_bound=loss.residual_bound,
            beta_theta=loss.smoothness,
            beta_y=beta_y,
            label_bound=label_bound,
        ),
    )
    public = _public(manifest, schedule, manifest.passive.step_size)
    radius = manifest.passive.weight_norm
    passive = plan_paper(
        paper_passive_bounds(radius),
        public,
        manifest.budget,
        value_bound=radius,
        published=published_passive(public, radius=radius, residual_bound=loss.residual_bound),
    )
    return Sides(_bookable(active), _bookable(passive))
