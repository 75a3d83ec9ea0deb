"""Scores rows with weights of an earlier run: one release per passive party, nothing is trained.

It owns what a prediction computes. The active party sends nothing; what it computes from the scores
appears in no message. Why the noise suffices: docs/prediction.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Send, Step
from hdpvfl_mq.methods.private_model.joint import averaged
from hdpvfl_mq.methods.score_regression import ScoreRegression
from parties.assets import Assets
from parties.common_rows import block_of, rows_of
from parties.phases import ActiveRounds, PassiveRounds, Setup, Training, checked
from parties.rounds.base import (
    Rounds,
    finished_round,
    is_complete,
    next_transcript,
    released,
    share_message,
)
from schemas.ids import PartyId

_DEVIATIONS = 2.0  # a sample variance further above the noise's counts as signal


@dataclass(frozen=True, kw_only=True)
class PredictionActive(ActiveRounds):
    """The active party's result: theta of every common row, in the common order."""

    theta: FloatVector | None = field(default=None, repr=False)


def start_passive(own: Assets, setup: Setup) -> PassiveRounds:
    """Start with the weights of the model."""
    return PassiveRounds(w=own.trained.weights)


def share(own: Assets, state: Training) -> Step[Training]:
    """Release the scores of all common rows, once; sealed if they have no noise."""
    if state.round >= state.planned:
        return state, ()
    plan, rounds = state.setup.plan, checked(PassiveRounds, state.rounds)
    active = plan.manifest.active_party
    scores = block_of(own, state.setup).scores(plan.schedule.batch(0), rounds.w)
    seal = (
        own.sealing_key(active, own.release_id(own.party, "share", 0)) if plan.is_sealed else None
    )
    release, state = released(state, scores, "share", seal=seal)
    state = replace(state, rounds=replace(rounds, shared=0))
    message = share_message(state, release)
    state, effects = finished_round(state, is_over=True)
    return state, (Send((active,), message), *effects)


def learn(own: Assets, state: Training, received: FloatVector) -> NoReturn:
    """PeerError: a prediction has no residuals."""
    raise PeerError("nobody sends residuals in a prediction")


def start_active(own: Assets, setup: Setup) -> PredictionActive:
    """Start with the weights of the model."""
    return PredictionActive(w=own.trained.weights)


def lead(own: Assets, state: Training) -> Step[Training]:
    """Add up once every passive party has sent its scores; nothing is released."""
    if state.round >= state.planned or not is_complete(state):
        return state, ()
    plan, rounds = state.setup.plan, checked(PredictionActive, state.rounds)
    theta = block_of(own, state.setup).scores(plan.schedule.batch(0), rounds.w).expose()
    transcript, doubt = state.transcript, 0.0
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        release, values = rounds.shares[passive]
        transcript = next_transcript(transcript, release)
        expected, variance = _expected(own, state.setup, passive, values)
        gamma = own.trained.coefficients.get(passive, 1.0)
        theta, doubt = theta + gamma * expected, doubt + gamma**2 * variance
    theta = averaged(plan.family, theta, np.array([doubt]))
    theta = _with_offset(own, state.setup, theta)
    rounds = replace(rounds, shares=MappingProxyType({}), theta=theta)
    return finished_round(replace(state, transcript=transcript, rounds=rounds), is_over=True)


def _expected(
    own: Assets, setup: Setup, passive: PartyId, share: FloatVector
) -> tuple[FloatVector, float]:
    """A party's expected scores, given its noised scores and their regression; their variance.

    The regression is on the active party's columns; where noise drowns the scores, it alone is
    left. After descent, and for a party that was away in training, there is no regression: scores
    are weighted by the variance clearly above the noise's.
    """
    noise_std = setup.plan.passive_noise.noise_std
    if noise_std == 0.0:
        return share, 0.0
    known = own.trained.score_regressions.get(passive)
    block = block_of(own, setup)
    regression = known or _unknown(share, block.columns, noise_std=noise_std)
    return regression.expected(block, share, noise_std=noise_std)


def _unknown(share: FloatVector, columns: int, *, noise_std: float) -> ScoreRegression:
    by_chance = 1.0 + _DEVIATIONS * math.sqrt(2.0 / len(share))
    variance = max(float(share.var()) - noise_std**2 * by_chance, 0.0)
    return ScoreRegression(np.zeros(columns), variance)


def _with_offset(own: Assets, setup: Setup, theta: FloatVector) -> FloatVector:
    """Theta of scored rows with their offsets, if the loss has offsets."""
    if own.data.offset is None:
        return theta
    reach = setup.plan.family.spec.offset_max
    return theta + np.clip(own.data.offset[rows_of(own, setup).order], -reach, reach)


ROUNDS = Rounds(
    active_start=start_active,
    active_proceed=lead,
    passive_start=start_passive,
    passive_proceed=share,
    passive_learn=learn,
)
