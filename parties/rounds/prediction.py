"""Scoring rows with weights of an earlier run: one release of each passive party, nothing learnt.

It owns what a prediction computes. The active party says nothing; what it makes of the scores is
its own business and shows in no message. Why the noise suffices: docs/prediction.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn, cast

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Send, Step
from hdpvfl_mq.methods.one_round.refit import ScoreRegression, flattened_by
from parties.assets import Assets
from parties.common_rows import block_of, rows_of
from parties.phases import ActiveRounds, PassiveRounds, Setup, Training
from parties.rounds.base import (
    Rounds,
    finished_round,
    missing,
    next_transcript,
    released,
    share_message,
)
from schemas.ids import PartyId

_DEVIATIONS = 2.0  # a sample variance further above the noise's is taken for signal


@dataclass(frozen=True, kw_only=True)
class PredictionActive(ActiveRounds):
    """What the active party finds: theta of every common row, in the common order."""

    theta: FloatVector | None = field(default=None, repr=False)


def start_passive(own: Assets, setup: Setup) -> PassiveRounds:
    """The weights of the model."""
    return PassiveRounds(w=own.trained.weights)


def share(own: Assets, state: Training) -> Step[Training]:
    """Release the scores of all common rows, once; sealed where they have no noise."""
    if state.round >= state.planned:
        return state, ()
    plan, rounds = state.setup.plan, cast(PassiveRounds, state.rounds)
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
    """There is nothing to learn from."""
    raise PeerError("nobody sends residuals in a prediction")


def start_active(own: Assets, setup: Setup) -> PredictionActive:
    """The weights of the model."""
    return PredictionActive(w=own.trained.weights)


def lead(own: Assets, state: Training) -> Step[Training]:
    """Add up once every passive party has spoken; all of it is the party's own business."""
    if state.round >= state.planned or missing(state):
        return state, ()
    plan, rounds = state.setup.plan, cast(PredictionActive, state.rounds)
    theta = block_of(own, state.setup).scores(plan.schedule.batch(0), rounds.w).expose()
    transcript, doubt = state.transcript, 0.0
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        release, values = rounds.shares[passive]
        transcript = next_transcript(transcript, release)
        expected, variance = _expected(own, state.setup, passive, values)
        gamma = own.trained.coefficients.get(passive, 1.0)
        theta, doubt = theta + gamma * expected, doubt + gamma**2 * variance
    theta = _with_offset(own, state.setup, theta / flattened_by(plan.family, doubt))
    rounds = replace(rounds, shares=MappingProxyType({}), theta=theta)
    return finished_round(replace(state, transcript=transcript, rounds=rounds), is_over=True)


def _expected(
    own: Assets, setup: Setup, passive: PartyId, share: FloatVector
) -> tuple[FloatVector, float]:
    """One party's scores given its noised ones and the regression on the own columns; their doubt.

    Where noise drowns them, what is left is the regression. After descent, and of a party that was
    away, there is none: scores count by the variance clearly above the noise's.
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
    """theta of scored rows with their offsets, where the loss has any."""
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
