"""One round of exact minimisers: residual, share, refit; both sides, top to bottom.

It owns what `method = "minimiser"` computes and in which order the parties speak: the active party
first, from its own data alone, then every passive party once. What follows stays inside the active
party: it fits its own weights again with what it received, and releases nothing more. Why that is
private, and why it learns more than many rounds of descent at the same budget: docs/one-round.md.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.minimiser import fit_active, fit_passive
from hdpvfl_mq.glm.refit import refit
from hdpvfl_mq.machine import Send, Step
from parties.assets import next_transcript
from schemas.ids import PartyId
from schemas.messages import Residual, ScoreShare

if TYPE_CHECKING:
    from parties.active import Active, ActiveState
    from parties.passive import Passive, PassiveState


def lead(party: Active, state: ActiveState) -> Step[ActiveState]:
    """Active: release the residual of the own minimiser, later fit again with all shares."""
    if state.round >= state.planned:
        return state, ()
    if state.last_released < state.round:
        return _release(party, state)
    if party.missing(state):
        return state, ()
    return _fit_again(party, state)


def begin(party: Passive, state: PassiveState) -> Step[PassiveState]:
    """Passive: wait for the residual."""
    return state, ()


def _release(party: Active, state: ActiveState) -> Step[ActiveState]:
    training, response = party.training(state), state.response
    terms = training.plan.terms
    assert response is not None
    assert terms is not None
    rows = training.plan.schedule.batch(state.round)
    w = fit_active(
        training.block,
        response,
        strength=terms.active_strength,
        feature_norm=terms.feature_norm,
        error=terms.active_error,
    )
    own = training.block.scores(rows, w)
    release = training.mechanism.release(
        response.residual(rows, own, 0.0),
        "residual",
        state.round,
        state.transcript,
        last_round=state.last_released,
    )
    state = replace(
        state,
        w=w,
        last_released=state.round,
        transcript=next_transcript(state.transcript, release),
        losses=(float(response.loss(rows, own, 0.0).expose().mean()),),
    )
    message = Residual(round=state.round, release=release)
    return state, (Send(training.plan.manifest.passive_parties, message),)


def _fit_again(party: Active, state: ActiveState) -> Step[ActiveState]:
    """Everything here is the party's own business: nothing is released after it."""
    training, response = party.training(state), state.response
    plan, terms = training.plan, training.plan.terms
    assert response is not None
    assert terms is not None
    transcript, shares = state.transcript, dict[PartyId, FloatVector]()
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        if party.counted(state, passive):
            release, values = state.shares[passive]
            transcript = next_transcript(transcript, release)
            shares[passive] = values
    w, told = refit(
        training.block,
        response,
        list(shares.values()),
        noise_std=plan.passive_noise.noise_std,
        prior_variance=terms.prior_variance,
    )
    state = replace(
        state,
        transcript=transcript,
        shares=MappingProxyType({}),
        told=MappingProxyType(dict(zip(shares, told, strict=True))),
    )
    return party.finished_round(state, w)


def learn(party: Passive, state: PassiveState, received: FloatVector) -> Step[PassiveState]:
    """Passive: the minimiser of the received residual's quadratic model, and its noised scores."""
    training = party.training(state)
    plan, terms = training.plan, training.plan.terms
    assert terms is not None
    if state.is_away(party.name):
        return party.finished_round(state, None)
    w = fit_passive(
        training.block,
        np.clip(received, -terms.received_clip, terms.received_clip),
        curvature=terms.curvature,
        strength=terms.passive_strength,
        weight_norm=terms.weight_norm,
    )
    rows = plan.schedule.batch(state.round)
    release = training.mechanism.release(
        training.block.scores(rows, w),
        "share",
        state.round,
        state.transcript,
        last_round=state.last_released,
    )
    message = ScoreShare(round=state.round, release=release)
    state = replace(
        state,
        shared=state.round,
        last_released=state.round,
        transcript=next_transcript(state.transcript, release),
    )
    state, effects = party.finished_round(state, w)
    return state, (Send((plan.manifest.active_party,), message), *effects)
