"""Rounds of gradient descent, as in the paper: share, residual, step; both sides, top to bottom.

It owns what a round of `method = "descent"` computes; joining, alignment and the end are in
member.py, what a party holds in active.py and passive.py. The residual is released from the weights
before the local steps, and the active party's own loss stays with it.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.penalties import project
from hdpvfl_mq.machine import Effect, Send, Step
from hdpvfl_mq.privacy.mechanism import released_values
from parties.assets import next_transcript
from schemas.messages import Residual, ScoreShare

if TYPE_CHECKING:
    from parties.active import Active, ActiveState
    from parties.passive import Passive, PassiveState


def begin(party: Passive, state: PassiveState) -> Step[PassiveState]:
    """Passive: release the scores of the current round, unless that is done or not its turn."""
    waits = state.is_done or state.round >= state.planned or state.shared >= state.round
    if waits or state.is_away(party.name):
        return state, ()
    training = party.training(state)
    scores = training.block.scores(training.plan.schedule.batch(state.round), state.w)
    release = training.mechanism.release(
        scores, "share", state.round, state.transcript, last_round=state.last_released
    )
    message = ScoreShare(round=state.round, release=release)
    state = replace(
        state,
        shared=state.round,
        last_released=state.round,
        transcript=next_transcript(state.transcript, release),
    )
    return state, (Send((training.plan.manifest.active_party,), message),)


def lead(party: Active, state: ActiveState) -> Step[ActiveState]:
    """Active: run every planned round whose parties have all spoken."""
    effects: tuple[Effect, ...] = ()
    while not state.is_done and state.round < state.planned and not party.missing(state):
        state, more = _round(party, state)
        effects = (*effects, *more)
    return state, effects


def _round(party: Active, state: ActiveState) -> Step[ActiveState]:
    """Sum what was received, release one residual, step on the un-noised one."""
    training, response = party.training(state), state.response
    assert response is not None
    rows = training.plan.schedule.batch(state.round)
    received, state = _received(party, state)
    own = training.block.scores(rows, state.w)
    residual = response.residual(rows, own, received)
    release = training.mechanism.release(
        residual, "residual", state.round, state.transcript, last_round=state.last_released
    )
    loss = float(response.loss(rows, own, received).expose().mean())
    state = replace(
        state,
        shares=MappingProxyType({}),
        last_released=state.round,
        transcript=next_transcript(state.transcript, release),
        losses=(*state.losses[-999:], loss),
    )
    message = Residual(round=state.round, release=release)
    w = _local_steps(party, state, rows, received)
    state, effects = party.finished_round(state, w, released_values(release))
    return state, (Send(training.plan.manifest.passive_parties, message), *effects)


def _received(party: Active, state: ActiveState) -> tuple[FloatVector, ActiveState]:
    """The sum of the shares, in party order: arrival is not information.

    For a party that is away its last released block of the same rows may stand in; that is
    post-processing and costs nothing.
    """
    plan = party.training(state).plan
    batch = state.round % plan.schedule.batches
    total, transcript = np.zeros(plan.schedule.batch_sizes[batch]), state.transcript
    stand_ins = dict(state.stand_ins)
    for passive in plan.manifest.passive_parties:
        if party.counted(state, passive):
            release, values = state.shares[passive]
            transcript = next_transcript(transcript, release)
            total = total + values
            if plan.manifest.absence == "last":
                stand_ins[passive, batch] = values
        elif (passive, batch) in stand_ins:
            total = total + stand_ins[passive, batch]
    return total, replace(state, transcript=transcript, stand_ins=MappingProxyType(stand_ins))


def _local_steps(
    party: Active, state: ActiveState, rows: slice, received: FloatVector
) -> FloatVector:
    """Step on the party's own un-noised residual, as often as the manifest says."""
    plan, block = party.training(state).plan, party.training(state).block
    assert state.response is not None
    w, eta = state.w, plan.active_eta(state.round)
    for _ in range(plan.manifest.active.local_steps):
        residual = state.response.residual(rows, block.scores(rows, w), received)
        w = plan.penalty.step(w, block.gradient(rows, residual), eta, free=block.free)
        w = project(w, plan.manifest.active.weight_norm)
    return w


def learn(party: Passive, state: PassiveState, received: FloatVector) -> Step[PassiveState]:
    """Passive: clip what came, step, go on; without a share of this round nothing is learnt."""
    plan, block = party.training(state).plan, party.training(state).block
    w = None
    if state.shared == state.round:
        clipped = np.clip(received, -plan.received_clip, plan.received_clip)
        gradient = block.gradient(plan.schedule.batch(state.round), clipped)
        w = plan.penalty.step(state.w, gradient, plan.passive_eta(state.round), free=())
        w = project(w, plan.manifest.passive.weight_norm)
    state, effects = party.finished_round(state, w, received)
    state, more = begin(party, state)
    return state, (*effects, *more)
