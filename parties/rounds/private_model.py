"""The private model: labels, statistics, scores, last fit; both sides, top to bottom.

It owns what the parties release and the order in which they send: the active party releases its
noised labels and never anything else; every passive party answers once. The active party's own
arithmetic on the answers is in parties/rounds/shares_fit.py. A passive party's weights follow from
two noised statistics alone, so the weights are private themselves and may be used for ever. Why:
docs/private-model.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Book, Effect, Send, Step
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.statistics import clipped, gram, moments, scores, unpacked
from hdpvfl_mq.methods.private_model.weights import (
    PrivateWeights,
    ReceivedLabels,
    Statistics,
    private_weights,
)
from hdpvfl_mq.privacy.mechanism import released_values
from parties.assets import Assets
from parties.common_rows import block_of, response_of, start_weights
from parties.phases import PassiveRounds, Setup, Training, checked
from parties.rounds.base import (
    Rounds,
    booked,
    counted,
    finished_round,
    is_complete,
    next_transcript,
    released,
    share_message,
)
from parties.rounds.shares_fit import PrivateActive, fitted_or_trouble
from schemas.ids import PartyId
from schemas.messages import Residual
from schemas.privacy import Release

# A kept X'X is reused, free, if its noise is at most this many times that of a new one.
_KEPT_NOISE = 2.0


@dataclass(frozen=True, kw_only=True)
class PrivatePassive(PassiveRounds):
    """A passive party's private weights, and the X'X that a later run may reuse."""

    w_std: FloatVector | None = field(default=None, repr=False)
    gram: Release | None = field(default=None, repr=False)
    size: float = 1.0  # deviation of a score


# -- active: the labels -------------------------------------------------------------------------


def start_active(own: Assets, setup: Setup) -> PrivateActive:
    """Start with public weights."""
    return PrivateActive(w=start_weights(own, setup))


def lead(own: Assets, state: Training) -> Step[Training]:
    """Release the labels; fit once all shares have arrived."""
    if state.round >= state.planned:
        return state, ()
    if state.last_released < state.round:
        return _release_labels(own, state)
    return _fit(own, state) if is_complete(state) else (state, ())


def _release_labels(own: Assets, state: Training) -> Step[Training]:
    """Release a constant minus the label of every training row; no column enters."""
    plan = _plan(state)
    labels = response_of(own, state.setup).centred_labels(plan.learnt_rows, own.allocate)
    round_ = state.round
    release, state = released(state, labels, "residual", allocate=own.allocate, engine=own.engine)
    return state, (Send(plan.manifest.passive_parties, Residual(round=round_, release=release)),)


# -- passive: statistics, weights, scores -------------------------------------------------------


def start_passive(own: Assets, setup: Setup) -> PrivatePassive:
    """Start with public weights."""
    return PrivatePassive(w=start_weights(own, setup))


def wait(own: Assets, state: Training) -> Step[Training]:
    """Do nothing: the active party sends first."""
    return state, ()


def learn(own: Assets, state: Training, received: FloatVector) -> Step[Training]:
    """Release two noised statistics, derive weights from them, and send the scores they give."""
    if state.round >= state.planned:
        raise PeerError("a residual after the only round of this run")
    if state.is_away(own.party):
        return finished_round(state, is_over=True)
    u, G, z = _statistics(own, state, received)
    weights = _weights(state, u, G, received, z)
    release, state = _scores(own, state, weights)
    message = share_message(state, release)
    rounds = PrivatePassive(
        w=weights.w, w_std=weights.std, gram=G, size=weights.size, shared=state.round
    )
    state, effects = finished_round(replace(state, rounds=rounds), is_over=True)
    # The statistics stay here, but scores that follow from them leave, so they are paid for too.
    inner: tuple[Effect, ...] = (Book(release=u),)
    if G is not own.kept_gram:
        inner = (*inner, Book(release=G))
    return state, (*inner, Send((_plan(state).manifest.active_party,), message), *effects)


def _statistics(
    own: Assets, state: Training, received: FloatVector
) -> tuple[Release, Release, FloatVector]:
    """X'z / n and X'X / n through the mechanism; a kept X'X costs nothing."""
    plan, block = _plan(state), block_of(own, state.setup)
    z = clipped(received, plan.clip, own.allocate)
    noise = plan.inner_noise
    u = booked(
        state, moments(block, z, clip=plan.clip, exponent=noise["moments"].exponent), "moments"
    )
    kept = own.kept_gram
    if kept is not None and kept.noise_std <= _KEPT_NOISE * noise["gram"].noise_std:
        return u, kept, z
    exact = gram(block, plan.learnt_rows.stop, exponent=noise["gram"].exponent)
    return u, booked(state, exact, "gram"), z


def _weights(
    state: Training, u: Release, G: Release, received: FloatVector, z: FloatVector
) -> PrivateWeights:
    plan = _plan(state)
    return private_weights(
        Statistics(
            moments=released_values(u),
            moments_std=u.noise_std,
            gram=unpacked(released_values(G)),
            gram_std=G.noise_std,
        ),
        ReceivedLabels.of(plan.family, received, z, plan.active_noise.noise_std),
        signal_share=plan.method.signal_share,
        variance_max=plan.method.weight_variance_max,
        weight_norm=plan.method.weight_norm,
    )


def _scores(own: Assets, state: Training, weights: PrivateWeights) -> tuple[Release, Training]:
    """Release scores in units of their deviation, clipped and noised; or exact for agreed rows."""
    plan, block = _plan(state), block_of(own, state.setup)
    exact, filled_rows = own.allocate((plan.share_count(state.round),), np.float64), 0
    for rows in plan.scored_rows:
        for part in chunks(rows.stop - rows.start):
            here = slice(rows.start + part.start, rows.start + part.stop)
            size = part.stop - part.start
            exact[filled_rows : filled_rows + size] = scores(block, here, weights.w)
            filled_rows += size
    if plan.is_sealed:
        key = own.sealing_key(
            plan.manifest.active_party, own.release_id(own.party, "share", state.round)
        )
        # The receiver multiplies by the scale, as it does for noised scores.
        return released(
            state, Unreleased(exact / weights.size), "share", seal=key, scale=weights.size
        )
    bound = plan.score_bound
    for part in chunks(len(exact)):
        exact[part] = np.clip(exact[part] / weights.size, -bound, bound)
    units = Unreleased(exact)
    return released(
        state,
        units,
        "share",
        scale=weights.size,
        allocate=own.allocate,
        engine=own.engine,
    )


# -- active: the last fit -----------------------------------------------------------------------


def _fit(own: Assets, state: Training) -> Step[Training]:
    """Fit the joint model from all shares; nothing is released after this."""
    plan, rounds = _plan(state), checked(PrivateActive, state.rounds)
    transcript, came = state.transcript, dict[PartyId, tuple[Release, FloatVector]]()
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        if counted(state, passive):
            came[passive] = rounds.shares[passive]
            transcript = next_transcript(transcript, came[passive][0])
    rounds = replace(fitted_or_trouble(own, state, came), shares=MappingProxyType({}))
    return finished_round(replace(state, transcript=transcript, rounds=rounds), is_over=True)


def _plan(state: Training) -> PrivateModelPlan:
    return checked(PrivateModelPlan, state.setup.plan)


ROUNDS = Rounds(
    active_start=start_active,
    active_proceed=lead,
    passive_start=start_passive,
    passive_proceed=wait,
    passive_learn=learn,
)
