"""Scoring rows with weights of an earlier run: one release of each passive party, nothing learnt.

It owns what `method = "prediction"` computes. The active party says nothing; what it makes of the
scores is its own business and shows in no message. Why the noise suffices: docs/prediction.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.refit import Told, flattened_by
from hdpvfl_mq.machine import Send, Step
from parties.assets import next_transcript
from schemas.ids import PartyId
from schemas.messages import ScoreShare

if TYPE_CHECKING:
    from parties.active import Active, ActiveState
    from parties.passive import Passive, PassiveState

_DEVIATIONS = 2.0  # a sample variance further above the noise's is taken for signal


def begin(party: Passive, state: PassiveState) -> Step[PassiveState]:
    """Passive: release the scores of all common rows, once; sealed where they have no noise."""
    if state.round >= state.planned:
        return state, ()
    training, plan = party.training(state), party.training(state).plan
    active, release_id = plan.manifest.active_party, f"{party.own.run}/{party.name}/share/0"
    release = training.mechanism.release(
        training.block.scores(plan.schedule.batch(0), state.w),
        "share",
        0,
        state.transcript,
        last_round=-1,
        seal=party.own.sealing_key(active, release_id) if plan.is_sealed else None,
    )
    state = replace(
        state, shared=0, last_released=0, transcript=next_transcript(state.transcript, release)
    )
    state, effects = party.finished_round(state, None)
    return state, (Send((active,), ScoreShare(round=0, release=release)), *effects)


def learn(party: Passive, state: PassiveState, received: FloatVector) -> NoReturn:
    """Passive: there is nothing to learn from."""
    raise PeerError("nobody sends residuals in a prediction")


def lead(party: Active, state: ActiveState) -> Step[ActiveState]:
    """Active: add up once every passive party has spoken; all of it is the party's own business."""
    if state.round >= state.planned or party.missing(state):
        return state, ()
    training, plan = party.training(state), party.training(state).plan
    theta = training.block.scores(plan.schedule.batch(0), state.w).expose()
    transcript, doubt = state.transcript, 0.0
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        release, values = state.shares[passive]
        transcript = next_transcript(transcript, release)
        expected, variance = _expected(party, state, passive, values)
        theta, doubt = theta + expected, doubt + variance
    theta = party.with_offset(theta / flattened_by(plan.family, doubt), state)
    state = replace(state, transcript=transcript, shares=MappingProxyType({}), theta=theta)
    return party.finished_round(state, None)


def _expected(
    party: Active, state: ActiveState, passive: PartyId, share: FloatVector
) -> tuple[FloatVector, float]:
    """One party's scores given its noised ones and what the training told of them; their doubt.

    Where noise drowns them, what is left is what the own columns tell. After descent, and of a
    party that was away, nothing is known: scores count by the variance clearly above the noise's.
    """
    training, model = party.training(state), party.own.model
    noise_std = training.plan.passive_noise.noise_std
    assert model is not None
    if noise_std == 0.0:
        return share, 0.0
    told = model.told.get(passive)
    known = told or _unknown(share, training.block.columns, noise_std=noise_std)
    return known.expected(training.block, share, noise_std=noise_std)


def _unknown(share: FloatVector, columns: int, *, noise_std: float) -> Told:
    by_chance = 1.0 + _DEVIATIONS * math.sqrt(2.0 / len(share))
    variance = max(float(share.var()) - noise_std**2 * by_chance, 0.0)
    return Told(np.zeros(columns), variance)
