"""A passive party: noised inner products out, noised residuals in, a step of its own weights.

It owns the passive side of a round; everything before and after is in member.py. One round reads
top to bottom: share, then residual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.penalties import project
from hdpvfl_mq.machine import Moves, Received, Send, Step, stay
from hdpvfl_mq.privacy.mechanism import largest_value, receive
from parties.member import SHARED_MOVES, Member
from parties.possession import MemberState, next_transcript
from schemas.messages import Residual, ScoreShare


@dataclass(frozen=True, kw_only=True)
class PassiveState(MemberState):
    """A passive party's memory."""

    shared: int = -1  # the last round this party sent a share for


class Passive(Member):
    """The role of a passive party."""

    moves: ClassVar[Moves]

    def initial(self) -> PassiveState:
        """Nothing has happened."""
        return PassiveState()

    def begin_training(self, state: PassiveState) -> Step[PassiveState]:
        """Send the share of the current round, unless it is sent, not planned, or not ours."""
        waits = state.round >= state.planned or state.shared >= state.round
        if waits or state.is_away(self.name):
            return state, ()
        training = self.training(state)
        scores = training.block.scores(training.plan.schedule.batch(state.round), state.w)
        release = training.mechanism.release(
            scores, "share", state.round, state.transcript, last_round=state.last_released
        )
        share = ScoreShare(round=state.round, release=release)
        state = replace(
            state,
            shared=state.round,
            last_released=state.round,
            transcript=next_transcript(state.transcript, release),
        )
        return state, (Send((training.plan.manifest.active_party,), share),)

    def residual(self, state: PassiveState, given: Received) -> Step[PassiveState]:
        """Clip what came, step, and go on; without a share of this round nothing is learnt."""
        message: Residual = given.message  # type: ignore[assignment]
        plan, block = self.training(state).plan, self.training(state).block
        expected = f"{self.own.run}/{given.sender}/residual/{state.round}"
        if message.round != state.round or message.release.release_id != expected:
            raise PeerError(f"expected the residual of round {state.round}")
        rows = plan.schedule.batch(state.round)
        received = receive(
            message.release,
            count=rows.stop - rows.start,
            bound=largest_value(plan.active_noise),
        )
        w = None
        if state.shared == state.round:
            clipped = np.clip(received, -plan.received_clip, plan.received_clip)
            gradient = block.gradient(rows, clipped)
            w = plan.penalty.step(state.w, gradient, plan.passive_eta(state.round), free=())
            w = project(w, plan.manifest.passive.weight_norm)
        state = replace(state, transcript=next_transcript(state.transcript, message.release))
        state, effects = self.finished_round(state, w)
        state, more = self.begin_training(state)
        return state, (*effects, *more)


Passive.moves = {
    **SHARED_MOVES,
    ("aligned", "residual"): Passive.residual,
    ("training", "residual"): Passive.residual,
    ("closed", "residual"): stay,
}
