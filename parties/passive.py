"""A passive party: noised inner products out, noised residuals in.

It owns how a passive party reads a residual; what a round computes is in parties/rounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Move, Moves, Received, Step, stay
from hdpvfl_mq.privacy.mechanism import receive_planned
from parties.agreement import agreed
from parties.assets import Assets
from parties.completion import ended
from parties.echo import heard_residual
from parties.member import SHARED_MOVES, first_plan, put_aside
from parties.phases import Agreeing, Aligned, Leaving, Over, Training
from parties.rounds import ROUNDS
from parties.rounds.base import next_transcript
from schemas.messages import Residual


def residual(own: Assets, state: Training, given: Received[Residual]) -> Step[Training]:
    """Read the active party's release and learn from it."""
    message, plan = given.message, state.setup.plan
    expected = own.release_id(given.sender, "residual", state.round)
    if message.round != state.round or message.release.release_id != expected:
        raise PeerError(f"expected the residual of round {state.round}")
    count = plan.residual_count(state.round)
    received = receive_planned(message.release, plan.active_noise, count=count)
    state = heard_residual(state, message.release)
    state = replace(state, transcript=next_transcript(state.transcript, message.release))
    return ROUNDS[type(state.manifest.method)].passive_learn(own, state, received)


MOVES: Moves = {
    **SHARED_MOVES,
    (Agreeing, "agreed"): Move(agreed, (Aligned, Leaving)),
    (Aligned, "round_plan"): Move(partial(first_plan, take=residual), (Training, Leaving)),
    (Aligned, "residual"): Move(put_aside, ()),
    (Training, "residual"): Move(residual, ()),
    (Training, "ended"): Move(ended, (Training, Leaving)),
    (Over, "agreed"): Move(stay, ()),
    (Over, "residual"): Move(stay, ()),
    (Over, "ended"): Move(stay, ()),
}
