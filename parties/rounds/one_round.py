"""One round of exact minimisers: residual, share, refit; both sides, top to bottom.

It owns what the one-round method computes and in which order the parties speak: the active party
first, from its own data alone, then every passive party once. What follows stays inside the active
party: it fits its own weights again with what it received, and releases nothing more. Why that is
private, and why it learns more than many rounds of descent at the same budget: docs/one-round.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Send, Step
from hdpvfl_mq.methods.one_round.fit import fit_active, fit_passive
from hdpvfl_mq.methods.one_round.plan import OneRoundPlan
from hdpvfl_mq.methods.one_round.refit import ScoreRegression, refit
from parties.assets import Assets
from parties.common_rows import block_of, response_of, start_weights
from parties.phases import ActiveRounds, PassiveRounds, Setup, Training
from parties.rounds.base import (
    Rounds,
    counted,
    finished_round,
    missing,
    next_transcript,
    released,
    share_message,
)
from schemas.ids import PartyId
from schemas.messages import Residual


@dataclass(frozen=True, kw_only=True)
class OneRoundActive(ActiveRounds):
    """What the active party remembers."""

    loss: float | None = field(default=None, repr=False)  # own loss, never sent
    score_regressions: Mapping[PartyId, ScoreRegression] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    @property
    def own_losses(self) -> tuple[float, ...]:
        """The loss of the own minimiser."""
        return () if self.loss is None else (self.loss,)


# -- active: the residual -----------------------------------------------------------------------


def start_active(own: Assets, setup: Setup) -> OneRoundActive:
    """Public weights."""
    return OneRoundActive(w=start_weights(own, setup))


def lead(own: Assets, state: Training) -> Step[Training]:
    """Release the residual of the own minimiser; fit again once all shares are there."""
    if state.round >= state.planned:
        return state, ()
    if state.last_released < state.round:
        return _release(own, state)
    return (state, ()) if missing(state) else _fit_again(own, state)


def _release(own: Assets, state: Training) -> Step[Training]:
    plan, rounds, round_ = _plan(state), _active(state), state.round
    block, response = block_of(own, state.setup), response_of(own, state.setup)
    rows = plan.schedule.batch(round_)
    w = fit_active(
        block,
        response,
        strength=plan.terms.active_strength,
        feature_norm=plan.terms.feature_norm,
        error=plan.terms.active_error,
    )
    scores = block.scores(rows, w)
    release, state = released(state, response.residual(rows, scores, 0.0), "residual")
    loss = float(response.loss(rows, scores, 0.0).expose().mean())
    state = replace(state, rounds=replace(rounds, w=w, loss=loss))
    message = Residual(round=round_, release=release)
    return state, (Send(plan.manifest.passive_parties, message),)


# -- passive: the share -------------------------------------------------------------------------


def start_passive(own: Assets, setup: Setup) -> PassiveRounds:
    """Public weights."""
    return PassiveRounds(w=start_weights(own, setup))


def wait(own: Assets, state: Training) -> Step[Training]:
    """The active party speaks first."""
    return state, ()


def learn(own: Assets, state: Training, received: FloatVector) -> Step[Training]:
    """The minimiser of the received residual's quadratic model, and its noised scores."""
    if state.round >= state.planned:
        raise PeerError("a residual after the only round of this run")
    if state.is_away(own.party):
        return finished_round(state, is_over=True)
    plan, terms = _plan(state), _plan(state).terms
    block = block_of(own, state.setup)
    w = fit_passive(
        block,
        np.clip(received, -terms.received_clip, terms.received_clip),
        curvature=terms.curvature,
        strength=terms.passive_strength,
        weight_norm=terms.weight_norm,
    )
    scores = block.scores(plan.schedule.batch(state.round), w)
    release, state = released(state, scores, "share")
    message = share_message(state, release)
    state = replace(state, rounds=PassiveRounds(w=w, shared=state.round))
    state, effects = finished_round(state, is_over=True)
    return state, (Send((plan.manifest.active_party,), message), *effects)


# -- active: the last fit -----------------------------------------------------------------------


def _fit_again(own: Assets, state: Training) -> Step[Training]:
    """Everything here is the party's own business: nothing is released after it."""
    plan, rounds = _plan(state), _active(state)
    transcript, shares = state.transcript, dict[PartyId, FloatVector]()
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        if counted(state, passive):
            release, values = rounds.shares[passive]
            transcript = next_transcript(transcript, release)
            shares[passive] = values
    w, regressions = refit(
        block_of(own, state.setup),
        response_of(own, state.setup),
        list(shares.values()),
        noise_std=plan.passive_noise.noise_std,
        prior_variance=plan.terms.prior_variance,
    )
    rounds = replace(
        rounds,
        w=w,
        shares=MappingProxyType({}),
        score_regressions=MappingProxyType(dict(zip(shares, regressions, strict=True))),
    )
    return finished_round(replace(state, transcript=transcript, rounds=rounds), is_over=True)


def _plan(state: Training) -> OneRoundPlan:
    return cast(OneRoundPlan, state.setup.plan)


def _active(state: Training) -> OneRoundActive:
    return cast(OneRoundActive, state.rounds)


ROUNDS = Rounds(
    active_start=start_active,
    active_proceed=lead,
    passive_start=start_passive,
    passive_proceed=wait,
    passive_learn=learn,
)
