"""A passive party: noised inner products out, noised residuals in.

It owns how a passive party reads a residual; what a round computes is in parties/rounds.
"""

from __future__ import annotations

from functools import partial

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Move, Moves, Received, Step, stay
from hdpvfl_mq.privacy.receiving import receive_planned
from parties.agreement import agreed
from parties.assets import Assets
from parties.completion import ended
from parties.echo import heard_residual
from parties.member import SHARED_MOVES
from parties.orders import first_plan, put_aside
from parties.phases import Agreeing, Aligned, Leaving, Over, Training, changed
from parties.rounds import ROUNDS, scoring
from parties.rounds.base import next_transcript
from schemas.messages import Residual
from schemas.scoring import ScoreQuery


def residual(own: Assets, state: Training, given: Received[Residual]) -> Step[Training]:
    """Read the active party's release and train on it."""
    message, plan = given.message, state.setup.plan
    expected = own.release_id(given.sender, "residual", state.round)
    if message.round != state.round or message.release.release_id != expected:
        raise PeerError(f"expected the residual of round {state.round}")
    count = plan.residual_count(state.round)
    received = receive_planned(
        message.release, plan.active_noise, count=count, allocate=own.allocate
    )
    state = heard_residual(state, message.release)
    state = changed(state, transcript=next_transcript(state.transcript, message.release))
    return ROUNDS[type(state.manifest.method)].passive_learn(own, state, received)


def heard(
    own: Assets, state: Training, given: Received[Residual] | Received[ScoreQuery]
) -> Step[Training]:
    """Handle a message that came before the first plan: a residual, or a session's first query."""
    if isinstance(given.message, ScoreQuery):
        return scoring.query(own, state, Received(given.sender, given.message))
    return residual(own, state, Received(given.sender, given.message))


MOVES: Moves = {
    **SHARED_MOVES,
    (Agreeing, "agreed"): Move(agreed, (Aligned, Leaving)),
    (Aligned, "round_plan"): Move(partial(first_plan, take=heard), (Training, Leaving)),
    (Aligned, "residual"): Move(put_aside, ()),
    (Aligned, "score_query"): Move(put_aside, ()),
    (Training, "residual"): Move(residual, ()),
    (Training, "ended"): Move(ended, (Training, Leaving)),
    (Training, "score_query"): Move(scoring.query, ()),
    (Training, "charged"): Move(scoring.answer, ()),
    (Over, "agreed"): Move(stay, ()),
    (Over, "residual"): Move(stay, ()),
    (Over, "ended"): Move(stay, ()),
    (Over, "score_query"): Move(stay, ()),
    (Over, "charged"): Move(stay, ()),
}
