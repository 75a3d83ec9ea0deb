"""The active party: it has the label, hears every passive party, and answers all with one residual.

It owns what the active party remembers and how it reads a share; what a round computes is in
descent.py, one_round.py and prediction.py, by the manifest's method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.refit import Told
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.machine import Moves, Received, Step, stay
from hdpvfl_mq.privacy.mechanism import largest_value, receive, unsealed
from parties.assets import MemberState
from parties.member import SHARED_MOVES, Member
from parties.rounds import descent, one_round, prediction
from schemas.ids import PartyId
from schemas.messages import ScoreShare
from schemas.privacy import Release


@dataclass(frozen=True, kw_only=True)
class ActiveState(MemberState):
    """The active party's memory."""

    shares: Mapping[PartyId, tuple[Release, FloatVector]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    # Last released block of each (party, batch), kept where the manifest lets it stand in.
    stand_ins: Mapping[tuple[PartyId, int], FloatVector] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    response: Response | None = field(default=None, repr=False)
    losses: tuple[float, ...] = field(default=(), repr=False)  # own loss per round, never sent
    # After one round: what the own columns tell of the scores of each party that was there.
    told: Mapping[PartyId, Told] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    # In a prediction: the own rows in the common order, and what was found for them.
    scored: NDArray[np.int64] | None = field(default=None, repr=False)
    theta: FloatVector | None = field(default=None, repr=False)


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
        if self.own.model is not None:
            return replace(state, scored=order)
        assert data.y is not None
        response = Response(
            self.training(state).plan.family,
            data.y,
            weights=data.weights,
            offset=data.offset,
            order=order,
            room=self.own.room,
        )
        return replace(state, response=response)

    def share(self, state: ActiveState, given: Received) -> Step[ActiveState]:
        """Keep a passive party's share; the round goes on when all of them are there."""
        message: ScoreShare = given.message  # type: ignore[assignment]
        plan = self.training(state).plan
        if message.round < state.round:
            return state, ()  # from a party that was left out of that round
        expected = f"{self.own.run}/{given.sender}/share/{state.round}"
        if message.round != state.round or message.release.release_id != expected:
            raise PeerError(f"expected the share of round {state.round}")
        if given.sender in state.shares:
            raise PeerError(f"a second share of round {state.round}")
        release = message.release
        if plan.is_sealed:
            release = unsealed(release, self.own.sealing_key(given.sender, expected))
        values = receive(
            release,
            count=plan.schedule.batch_sizes[state.round % plan.schedule.batches],
            bound=largest_value(plan.passive_noise),
        )
        shares = {**state.shares, given.sender: (message.release, values)}
        return self.begin_training(replace(state, shares=MappingProxyType(shares)))

    def begin_training(self, state: ActiveState) -> Step[ActiveState]:
        """Do whatever the current round allows by now."""
        return LEAD[self.training(state).plan.manifest.method](self, state)

    def with_offset(self, theta: FloatVector, state: ActiveState) -> FloatVector:
        """theta of scored rows with their offsets, where the loss has any."""
        if self.own.data.offset is None:
            return theta
        reach = self.training(state).plan.family.spec.offset_max
        return theta + np.clip(self.own.data.offset[state.scored], -reach, reach)

    def counted(self, state: ActiveState, passive: PartyId) -> bool:
        """Whether a party's share enters the current round.

        Not if the round goes on without it, even if its share has come: when it came is not
        information, and after a crash it may come earlier or later.
        """
        return passive in state.shares and not state.is_away(passive)

    def missing(self, state: ActiveState) -> tuple[PartyId, ...]:
        """The parties whose share the current round still needs."""
        passives = self.training(state).plan.manifest.passive_parties
        return tuple(p for p in passives if p not in state.shares and not state.is_away(p))


LEAD = {
    "descent": descent.lead,
    "minimiser": one_round.lead,
    "prediction": prediction.lead,
}
Active.moves = {
    **SHARED_MOVES,
    ("aligned", "score_share"): Active.share,
    ("training", "score_share"): Active.share,
    ("closed", "score_share"): stay,
}
