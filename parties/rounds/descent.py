"""Rounds of gradient descent, as in the paper: share, residual, step; both sides, top to bottom.

It owns what a round of descent computes; its plan and its bounds are in hdpvfl_mq/methods/descent.
The residual is released from the weights before the local steps. The active party never sends its
own loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.penalties import project
from hdpvfl_mq.machine import Effect, Send, Step
from hdpvfl_mq.methods.descent.plan import DescentPlan
from hdpvfl_mq.privacy.mechanism import released_values
from parties.assets import Assets
from parties.common_rows import block_of, response_of, start_weights
from parties.phases import (
    ActiveRounds,
    PassiveRounds,
    RoundState,
    Setup,
    Training,
    changed,
    checked,
)
from parties.rounds.base import (
    Rounds,
    counted,
    finished_round,
    is_complete,
    next_transcript,
    released,
    share_message,
)
from schemas.ids import PartyId
from schemas.messages import Residual


@dataclass(frozen=True, kw_only=True)
class Averaged(RoundState):
    """Iterates to average, and the energies a stop rule reads; the same on both sides."""

    w_sum: FloatVector = field(repr=False)
    w_count: int = 0
    energies: tuple[float, ...] = ()  # of the released residuals, by epoch; public

    @property
    def final_weights(self) -> FloatVector:
        """The average of the iterates the manifest names."""
        return self.w if self.w_count == 0 else self.w_sum / self.w_count


@dataclass(frozen=True, kw_only=True)
class DescentPassive(Averaged, PassiveRounds):
    """What a passive party remembers between rounds."""


@dataclass(frozen=True, kw_only=True)
class DescentActive(Averaged, ActiveRounds):
    """What the active party remembers between rounds."""

    # Last released block of each (party, batch), kept if the manifest lets it stand in.
    stand_ins: Mapping[tuple[PartyId, int], FloatVector] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    losses: tuple[float, ...] = field(default=(), repr=False)  # own loss per round, never sent

    @property
    def own_losses(self) -> tuple[float, ...]:
        """The active party's loss in the last rounds."""
        return self.losses


# -- passive: the share ------------------------------------------------------------------------


def start_passive(own: Assets, setup: Setup) -> DescentPassive:
    """Start with public weights."""
    w = start_weights(own, setup)
    return DescentPassive(w=w, w_sum=np.zeros_like(w))


def share(own: Assets, state: Training) -> Step[Training]:
    """Release the scores of the current round, unless that is done or not this party's turn."""
    rounds = _passive(state)
    waits = state.is_done or state.round >= state.planned or rounds.shared >= state.round
    if waits or state.is_away(own.party):
        return state, ()
    plan = state.setup.plan
    scores = block_of(own, state.setup).scores(plan.schedule.batch(state.round), rounds.w)
    release, state = released(state, scores, "share", engine=own.engine)
    state = changed(state, rounds=changed(rounds, shared=state.round))
    message = share_message(state, release)
    return state, (Send((plan.manifest.active_party,), message),)


# -- active: the residual and its own steps ------------------------------------------------------


def start_active(own: Assets, setup: Setup) -> DescentActive:
    """Start with public weights."""
    w = start_weights(own, setup)
    return DescentActive(w=w, w_sum=np.zeros_like(w))


def lead(own: Assets, state: Training) -> Step[Training]:
    """Run every planned round for which all shares have arrived."""
    effects: tuple[Effect, ...] = ()
    while not state.is_done and state.round < state.planned and is_complete(state):
        state, more = _round(own, state)
        effects = (*effects, *more)
    return state, effects


def _round(own: Assets, state: Training) -> Step[Training]:
    """Sum what was received, release one residual, step on the un-noised one."""
    plan, block, round_ = _plan(state), block_of(own, state.setup), state.round
    response = response_of(own, state.setup)
    rows = plan.schedule.batch(round_)
    received, state = _sum_of_shares(state)
    rounds = _active(state)
    scores = block.scores(rows, rounds.w)
    residual = response.residual(rows, scores, received)
    release, state = released(state, residual, "residual", engine=own.engine)
    loss = float(response.loss(rows, scores, received).expose().mean())
    rounds = changed(rounds, shares=MappingProxyType({}), losses=(*rounds.losses[-999:], loss))
    w = _local_steps(own, state, received, residual)
    state, effects = _averaged(state, rounds, w, released_values(release))
    message = Residual(round=round_, release=release)
    return state, (Send(plan.manifest.passive_parties, message), *effects)


def _sum_of_shares(state: Training) -> tuple[FloatVector, Training]:
    """The sum of the shares, in party order: arrival is not information.

    The last released block of the same rows may stand in for a party that is away; that is
    post-processing and costs nothing.
    """
    plan, rounds = _plan(state), _active(state)
    batch = state.round % plan.schedule.batches
    total, transcript = np.zeros(plan.schedule.batch_sizes[batch]), state.transcript
    stand_ins = dict(rounds.stand_ins)
    for passive in plan.manifest.passive_parties:
        if counted(state, passive):
            release, values = rounds.shares[passive]
            transcript = next_transcript(transcript, release)
            total = total + values
            if plan.manifest.absence == "last":
                stand_ins[passive, batch] = values
        elif (passive, batch) in stand_ins:
            total = total + stand_ins[passive, batch]
    rounds = changed(rounds, stand_ins=MappingProxyType(stand_ins))
    return total, changed(state, transcript=transcript, rounds=rounds)


def _local_steps(
    own: Assets, state: Training, received: FloatVector, residual: Unreleased
) -> FloatVector:
    """Step on the party's own un-noised residual, as often as the manifest says.

    `residual` is that of the weights before the first step.
    """
    plan, block, rounds = _plan(state), block_of(own, state.setup), _active(state)
    response, rows = response_of(own, state.setup), plan.schedule.batch(state.round)
    w, eta, side = rounds.w, plan.eta("active", state.round), plan.method.active
    for step in range(side.local_steps):
        if step:
            residual = response.residual(rows, block.scores(rows, w), received)
        w = plan.penalty.step(w, block.gradient(rows, residual), eta, free=block.free)
        w = project(w, side.weight_norm)
    return w


# -- passive: the step --------------------------------------------------------------------------


def learn(own: Assets, state: Training, received: FloatVector) -> Step[Training]:
    """Clip the received residual, take a step, and send the next share.

    The bound counts a step for every round that was shared. So a residual is legal only for a round
    that this party has shared, or that it misses under the plan that priced its absence.
    """
    plan, block, rounds = _plan(state), block_of(own, state.setup), _passive(state)
    w = rounds.w
    if rounds.shared == state.round:
        clipped = np.clip(received, -plan.clip, plan.clip)
        gradient = block.gradient(plan.schedule.batch(state.round), clipped)
        w = plan.penalty.step(w, gradient, plan.eta("passive", state.round), free=())
        w = project(w, plan.method.passive.weight_norm)
    elif not state.is_away(own.party):
        raise PeerError(f"the residual of round {state.round}, which this party has not shared")
    state, effects = _averaged(state, rounds, w, received)
    state, more = share(own, state)
    return state, (*effects, *more)


def _averaged(
    state: Training, rounds: Averaged, w: FloatVector, residual: FloatVector
) -> Step[Training]:
    """Count a round with its iterate; `residual` is the public residual a stop rule may read."""
    plan, is_averaged = _plan(state), state.round >= _plan(state).first_averaged
    rounds = changed(
        rounds,
        w=w,
        w_sum=rounds.w_sum + w if is_averaged else rounds.w_sum,
        w_count=rounds.w_count + int(is_averaged),
        energies=plan.energies_after(state.round, rounds.energies, residual),
    )
    is_over = plan.is_over(state.round + 1, rounds.energies)
    return finished_round(changed(state, rounds=rounds), is_over=is_over)


def _plan(state: Training) -> DescentPlan:
    return checked(DescentPlan, state.setup.plan)


def _active(state: Training) -> DescentActive:
    return checked(DescentActive, state.rounds)


def _passive(state: Training) -> DescentPassive:
    return checked(DescentPassive, state.rounds)


ROUNDS = Rounds(
    active_start=start_active,
    active_proceed=lead,
    passive_start=start_passive,
    passive_proceed=share,
    passive_learn=learn,
)
