"""Scoring rows with weights of an earlier run: one release of each passive party, nothing learnt.

It owns what `method = "prediction"` computes. The active party says nothing; what it makes of the
scores is its own business and shows in no message. Why the noise suffices: docs/prediction.md.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.refit import conditional_scores
from hdpvfl_mq.machine import Send, Step
from hdpvfl_mq.unreleased import FloatVector
from parties.possession import next_transcript
from schemas.messages import ScoreShare

if TYPE_CHECKING:
    from parties.active import Active, ActiveState
    from parties.passive import Passive, PassiveState


def begin(party: Passive, state: PassiveState) -> Step[PassiveState]:
    """Passive: release the scores of all common rows, once."""
    if state.round >= state.planned:
        return state, ()
    training = party.training(state)
    release = training.mechanism.release(
        training.block.scores(training.plan.schedule.batch(0), state.w),
        "share",
        0,
        state.transcript,
        last_round=-1,
    )
    state = replace(
        state, shared=0, last_released=0, transcript=next_transcript(state.transcript, release)
    )
    state, effects = party.finished_round(state, None)
    share = Send((training.plan.manifest.active_party,), ScoreShare(round=0, release=release))
    return state, (share, *effects)


def learn(party: Passive, state: PassiveState, received: FloatVector) -> NoReturn:
    """Passive: there is nothing to learn from."""
    raise PeerError("nobody sends residuals in a prediction")


def lead(party: Active, state: ActiveState) -> Step[ActiveState]:
    """Active: add up once every passive party has spoken.

    A noised score counts by as much as it tells beyond the own columns; where noise drowns it, next
    to nothing.
    """
    if state.round >= state.planned or party.missing(state):
        return state, ()
    training, plan = party.training(state), party.training(state).plan
    assert plan.manifest.prediction is not None
    theta = training.block.scores(plan.schedule.batch(0), state.w).expose()
    transcript, noise_std = state.transcript, plan.passive_noise.noise_std
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        release, values = state.shares[passive]
        transcript = next_transcript(transcript, release)
        if noise_std > 0.0:
            values, _ = conditional_scores(
                training.block,
                values,
                noise_std=noise_std,
                prior_variance=plan.manifest.prediction.weight_norm**2,
            )
        theta = theta + values
    state = replace(
        state,
        transcript=transcript,
        shares=MappingProxyType({}),
        theta=party.with_offset(theta, state),
    )
    return party.finished_round(state, None)
