"""A passive party: noised inner products out, noised residuals in.

It owns what a passive party remembers and how it reads a residual; what a round computes is in
descent.py, one_round.py and prediction.py, by the manifest's method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Moves, Received, Step, stay
from hdpvfl_mq.privacy.mechanism import largest_value, receive
from parties.assets import MemberState, next_transcript
from parties.member import SHARED_MOVES, Member
from parties.rounds import descent, one_round, prediction
from schemas.messages import Residual


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
        """In descent and predictions a passive party speaks first, else it waits."""
        return BEGIN[self.training(state).plan.manifest.method](self, state)

    def residual(self, state: PassiveState, given: Received) -> Step[PassiveState]:
        """Read the active party's release and learn from it."""
        message: Residual = given.message  # type: ignore[assignment]
        plan = self.training(state).plan
        expected = f"{self.own.run}/{given.sender}/residual/{state.round}"
        if message.round != state.round or message.release.release_id != expected:
            raise PeerError(f"expected the residual of round {state.round}")
        received = receive(
            message.release,
            count=plan.schedule.batch_sizes[state.round % plan.schedule.batches],
            bound=largest_value(plan.active_noise),
        )
        state = replace(state, transcript=next_transcript(state.transcript, message.release))
        return LEARN[plan.manifest.method](self, state, received)


BEGIN = {
    "descent": descent.begin,
    "minimiser": one_round.begin,
    "prediction": prediction.begin,
}
LEARN = {
    "descent": descent.learn,
    "minimiser": one_round.learn,
    "prediction": prediction.learn,
}
Passive.moves = {
    **SHARED_MOVES,
    ("aligned", "residual"): Passive.residual,
    ("training", "residual"): Passive.residual,
    ("closed", "residual"): stay,
}
