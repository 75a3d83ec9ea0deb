"""The private model: labels, statistics, scores, last fit; both sides, top to bottom.

It owns what this method computes and in which order the parties speak: the active party releases
its labels, noised, and nothing else ever; every passive party answers once. A passive party's
weights follow from two noised statistics alone, so they are private themselves and may be used for
ever. Why: docs/private-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.families import family, unclipped
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.machine import Book, Effect, Send, Step
from hdpvfl_mq.methods.one_round.refit import ScoreRegression
from hdpvfl_mq.methods.private_model.expectation import Expected, Shares, expect
from hdpvfl_mq.methods.private_model.last_fit import (
    Labels,
    LastFit,
    column_scale,
    flattening,
    last_fit,
)
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.statistics import clipped, gram, moments, scores, unpacked
from hdpvfl_mq.methods.private_model.weights import (
    PrivateWeights,
    Received,
    Statistics,
    private_weights,
)
from hdpvfl_mq.privacy.mechanism import released_values
from parties.assets import Assets
from parties.common_rows import block_of, response_of, rows_of, start_weights
from parties.phases import ActiveRounds, PassiveRounds, Setup, Training
from parties.rounds.base import (
    Rounds,
    booked,
    counted,
    finished_round,
    missing,
    next_transcript,
    released,
    share_message,
)
from schemas.ids import PartyId
from schemas.messages import Residual
from schemas.privacy import Release

# A kept X'X whose noise is at most so many times that of a new one is used again, free.
_KEPT_NOISE = 2.0


@dataclass(frozen=True, kw_only=True)
class PrivateActive(ActiveRounds):
    """What the active party finds in its last fit; none of it leaves."""

    fit: LastFit | None = field(default=None, repr=False)
    partners: tuple[PartyId, ...] = ()  # in the order of the coefficients
    score_regressions: Mapping[PartyId, ScoreRegression] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    held_out: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @property
    def own_losses(self) -> tuple[float, ...]:
        """The cross-validated loss of the last fit."""
        return () if self.fit is None else (self.fit.loss,)

    @property
    def coefficients(self) -> dict[PartyId, float]:
        """What each partner's scores are multiplied by; 0 for all where the fit is without them."""
        if self.fit is None:
            return {}
        return dict(zip(self.partners, self.fit.coefficients.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class PrivatePassive(PassiveRounds):
    """A passive party's private weights, and the X'X that a later run may use again."""

    w_std: FloatVector | None = field(default=None, repr=False)
    gram: Release | None = field(default=None, repr=False)


# -- active: the labels -------------------------------------------------------------------------


def start_active(own: Assets, setup: Setup) -> PrivateActive:
    """Public weights."""
    return PrivateActive(w=start_weights(own, setup))


def lead(own: Assets, state: Training) -> Step[Training]:
    """Release the labels; fit once all shares are there."""
    if state.round >= state.planned:
        return state, ()
    if state.last_released < state.round:
        return _release_labels(own, state)
    return (state, ()) if missing(state) else _fit(own, state)


def _release_labels(own: Assets, state: Training) -> Step[Training]:
    """A constant minus the label of every row that is learnt from; no column enters."""
    plan = _plan(state)
    labels = response_of(own, state.setup).centred_labels(plan.learnt_rows)
    round_ = state.round
    release, state = released(state, labels, "residual")
    return state, (Send(plan.manifest.passive_parties, Residual(round=round_, release=release)),)


# -- passive: statistics, weights, scores -------------------------------------------------------


def start_passive(own: Assets, setup: Setup) -> PrivatePassive:
    """Public weights."""
    return PrivatePassive(w=start_weights(own, setup))


def wait(own: Assets, state: Training) -> Step[Training]:
    """The active party speaks first."""
    return state, ()


def learn(own: Assets, state: Training, received: FloatVector) -> Step[Training]:
    """Two noised statistics, the weights that follow from them, and the scores those give."""
    if state.round >= state.planned:
        raise PeerError("a residual after the only round of this run")
    if state.is_away(own.party):
        return finished_round(state, is_over=True)
    u, G, z = _statistics(own, state, received)
    weights = _weights(state, u, G, received, z)
    release, state = _scores(own, state, weights)
    message = share_message(state, release)
    rounds = PrivatePassive(w=weights.w, w_std=weights.std, gram=G, shared=state.round)
    state, effects = finished_round(replace(state, rounds=rounds), is_over=True)
    # Statistics stay here, but what follows from them leaves: they are paid like what leaves.
    inner: tuple[Effect, ...] = (Book(release=u),)
    if G is not own.kept_gram:
        inner = (*inner, Book(release=G))
    return state, (*inner, Send((_plan(state).manifest.active_party,), message), *effects)


def _statistics(
    own: Assets, state: Training, received: FloatVector
) -> tuple[Release, Release, FloatVector]:
    """X'z / n and X'X / n through the mechanism; a kept X'X costs nothing."""
    plan, block = _plan(state), block_of(own, state.setup)
    z = clipped(received, plan.clip)
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
        Received.of(plan.family, received, z, plan.active_noise.noise_std),
        signal_share=plan.method.signal_share,
        variance_max=plan.method.weight_variance_max,
        weight_norm=plan.method.weight_norm,
    )


def _scores(own: Assets, state: Training, weights: PrivateWeights) -> tuple[Release, Training]:
    """Scores in units of their deviation, clipped and noised; or exact ones of agreed rows."""
    plan, block = _plan(state), block_of(own, state.setup)
    exact = np.concatenate([scores(block, rows, weights.w) for rows in plan.scored_rows])
    if plan.is_sealed:
        key = own.sealing_key(
            plan.manifest.active_party, own.release_id(own.party, "share", state.round)
        )
        # Multiplied by the scale at the receiver, as noised ones are.
        return released(
            state, Unreleased(exact / weights.size), "share", seal=key, scale=weights.size
        )
    bound = plan.score_bound
    units = Unreleased(np.clip(exact / weights.size, -bound, bound))
    return released(state, units, "share", scale=weights.size)


# -- active: the last fit -----------------------------------------------------------------------


def _fit(own: Assets, state: Training) -> Step[Training]:
    """Everything here is the party's own business: nothing is released after it."""
    plan, rounds = _plan(state), cast(PrivateActive, state.rounds)
    transcript, came = state.transcript, dict[PartyId, tuple[Release, FloatVector]]()
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        if counted(state, passive):
            came[passive] = rounds.shares[passive]
            transcript = next_transcript(transcript, came[passive][0])
    block = block_of(own, state.setup)
    labels = _labels(own, state.setup)
    learnt, sizes = plan.learnt_rows, np.array([release.scale for release, _ in came.values()])
    A = block.dense(slice(0, block.rows))
    column = column_scale(A[learnt])
    expected, received = None, np.zeros((plan.share_count(0), len(came)))
    if came:
        received = np.column_stack([values * release.scale for release, values in came.values()])
        shares = Shares(
            values=received[: plan.scored_rows[0].stop][: learnt.stop],
            noise_std=plan.passive_noise.noise_std * sizes,
            size=sizes,
        )
        expected = expect(A[learnt] / column, shares)
    fit = last_fit(A[learnt], labels.of(learnt), expected)
    held = _held_out(plan, A / column, received, labels, expected, replace(fit, w=fit.w * column))
    rounds = replace(
        rounds,
        w=fit.w,
        fit=fit,
        partners=tuple(came),
        score_regressions=MappingProxyType(_regressions(tuple(came), expected, column)),
        held_out=MappingProxyType(held),
        shares=MappingProxyType({}),
    )
    return finished_round(replace(state, transcript=transcript, rounds=rounds), is_over=True)


def _regressions(
    partners: tuple[PartyId, ...], expected: Expected | None, column: FloatVector
) -> dict[PartyId, ScoreRegression]:
    """What the own columns tell of each partner's scores: for later scores that are noised."""
    if expected is None:
        return {}
    told, left = expected.told / column[:, None], np.diag(expected.doubt_unseen)
    return {
        party: ScoreRegression(told[:, number], float(left[number]))
        for number, party in enumerate(partners)
    }


def _labels(own: Assets, setup: Setup) -> Labels:
    """Labels of the common rows, as they are: this fit needs no bound."""
    order = rows_of(own, setup).order
    assert own.data.y is not None
    return Labels(
        family=family(unclipped(setup.plan.manifest.loss)),
        y=own.data.y[order],
        weights=None if own.data.weights is None else own.data.weights[order],
        offset=None if own.data.offset is None else own.data.offset[order],
    )


def _held_out(
    plan: PrivateModelPlan,
    A: np.ndarray,
    received: np.ndarray,
    labels: Labels,
    expected: Expected | None,
    fit: LastFit,
) -> dict[str, float]:
    """Quality on the rows nothing was learnt from, with the scores that came for them."""
    rows = plan.held_out
    count = rows.stop - rows.start
    if count == 0:
        return {}
    theta = A[rows] @ fit.w
    if expected is not None and fit.is_joint:
        theta = theta + expected.of_rows(A[rows], received[-count:]) @ fit.coefficients
        doubt = float(fit.coefficients @ expected.doubt_seen @ fit.coefficients)
        theta = theta / flattening(labels.family, np.array([max(doubt, 0.0)]))
    if labels.offset is not None:
        theta = theta + labels.offset[rows]
    return {"rows": float(count), **quality(labels.family, theta, labels.y[rows])}


def _plan(state: Training) -> PrivateModelPlan:
    return cast(PrivateModelPlan, state.setup.plan)


ROUNDS = Rounds(
    active_start=start_active,
    active_proceed=lead,
    passive_start=start_passive,
    passive_proceed=wait,
    passive_learn=learn,
)
