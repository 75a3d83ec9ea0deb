"""The active party: sums what it received, releases one noised residual, steps its own weights.

It owns the active side of a round; everything before and after is in member.py. The residual is
released from the weights before the local steps, and the party's own loss stays with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.penalties import project
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.machine import Effect, Moves, Received, Send, Step, stay
from hdpvfl_mq.privacy.mechanism import largest_value, receive
from hdpvfl_mq.unreleased import FloatVector
from parties.member import SHARED_MOVES, Member
from parties.possession import MemberState, next_transcript
from schemas.ids import PartyId
from schemas.messages import Residual, ScoreShare
from schemas.privacy import Release

_NO_SHARES: Mapping[PartyId, tuple[Release, FloatVector]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class ActiveState(MemberState):
    """The active party's memory."""

    shares: Mapping[PartyId, tuple[Release, FloatVector]] = field(
        default_factory=lambda: _NO_SHARES, repr=False
    )
    # Last released block of each (party, batch), kept where the manifest lets it stand in.
    stand_ins: Mapping[tuple[PartyId, int], FloatVector] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    response: Response | None = field(default=None, repr=False)
    losses: tuple[float, ...] = field(default=(), repr=False)  # own loss per round, never sent


class Active(Member):
    """The role of the active party."""

    moves: ClassVar[Moves]

    def initial(self) -> ActiveState:
        """Nothing has happened."""
        return ActiveState()

    def progress(self, state: ActiveState) -> dict[str, Any]:  # type: ignore[override]
        """The shared view and the party's own loss, for its own console only."""
        return {**super().progress(state), "loss": state.losses[-1] if state.losses else None}

    def prepare_training(self, state: ActiveState, order: NDArray[np.int64]) -> ActiveState:
        """Labels, weights and offsets of the common rows."""
        data = self.own.data
        assert data.y is not None
        response = Response(
            self.training(state).plan.family,
            data.y[order],
            weights=None if data.weights is None else data.weights[order],
            offset=None if data.offset is None else data.offset[order],
        )
        return replace(state, response=response)

    def share(self, state: ActiveState, given: Received) -> Step[ActiveState]:
        """Keep a passive party's share; the round runs when all of them are there."""
        message: ScoreShare = given.message  # type: ignore[assignment]
        plan = self.training(state).plan
        if message.round < state.round:
            return state, ()  # from a party that was left out of that round
        expected = f"{self.own.run}/{given.sender}/share/{state.round}"
        if message.round != state.round or message.release.release_id != expected:
            raise PeerError(f"expected the share of round {state.round}")
        if given.sender in state.shares:
            raise PeerError(f"a second share of round {state.round}")
        rows = plan.schedule.batch(state.round)
        values = receive(
            message.release,
            count=rows.stop - rows.start,
            bound=largest_value(plan.passive_noise),
        )
        shares = {**state.shares, given.sender: (message.release, values)}
        return self.begin_training(replace(state, shares=MappingProxyType(shares)))

    def begin_training(self, state: ActiveState) -> Step[ActiveState]:
        """Run every planned round whose parties have all spoken."""
        effects: tuple[Effect, ...] = ()
        while state.round < state.planned and not self.missing(state):
            state, more = self.run_round(state)
            effects = (*effects, *more)
        return state, effects

    def missing(self, state: ActiveState) -> tuple[PartyId, ...]:
        """The parties whose share the current round still needs."""
        passives = self.training(state).plan.manifest.passive_parties
        return tuple(p for p in passives if p not in state.shares and not state.is_away(p))

    def run_round(self, state: ActiveState) -> Step[ActiveState]:
        """Sum, release, step: one round."""
        training, response = self.training(state), state.response
        assert response is not None
        plan, block = training.plan, training.block
        rows = plan.schedule.batch(state.round)
        received, state = self._received(state)
        transcript = state.transcript
        own = block.scores(rows, state.w)
        residual = response.residual(rows, own, received)
        release = training.mechanism.release(
            residual, "residual", state.round, transcript, last_round=state.last_released
        )
        loss = float(response.loss(rows, own, received).expose().mean())
        state = replace(
            state,
            shares=_NO_SHARES,
            last_released=state.round,
            transcript=next_transcript(transcript, release),
            losses=(*state.losses[-999:], loss),
        )
        w = self._local_steps(state, rows, received)
        message = Residual(round=state.round, release=release)
        state, effects = self.finished_round(state, w)
        return state, (Send(plan.manifest.passive_parties, message), *effects)

    def _received(self, state: ActiveState) -> tuple[FloatVector, ActiveState]:
        """The sum of the shares, in party order: arrival is not information.

        For a party that is away its last released block of the same rows may stand in; that is
        post-processing and costs nothing.
        """
        plan = self.training(state).plan
        batch = state.round % plan.schedule.batches
        total, transcript = np.zeros(plan.schedule.batch_sizes[batch]), state.transcript
        stand_ins = dict(state.stand_ins)
        for party in plan.manifest.passive_parties:
            if party in state.shares:
                release, values = state.shares[party]
                transcript = next_transcript(transcript, release)
                total = total + values
                if plan.manifest.absence == "last":
                    stand_ins[party, batch] = values
            elif (party, batch) in stand_ins:
                total = total + stand_ins[party, batch]
        stood_in = MappingProxyType(stand_ins)
        return total, replace(state, transcript=transcript, stand_ins=stood_in)

    def _local_steps(self, state: ActiveState, rows: slice, received: FloatVector) -> FloatVector:
        """Step on the party's own un-noised residual, as often as the manifest says."""
        plan, block = self.training(state).plan, self.training(state).block
        assert state.response is not None
        w, eta = state.w, plan.active_eta(state.round)
        for _ in range(plan.manifest.active.local_steps):
            residual = state.response.residual(rows, block.scores(rows, w), received)
            gradient = block.gradient(rows, residual)
            w = plan.penalty.step(w, gradient, eta, free=block.free)
            w = project(w, plan.manifest.active.weight_norm)
        return w


Active.moves = {
    **SHARED_MOVES,
    ("aligned", "score_share"): Active.share,
    ("training", "score_share"): Active.share,
    ("closed", "score_share"): stay,
}
