"""The active party: it has the label, gets every passive party's share and sends all one residual.

It owns how the active party reads a share; what a round computes is in parties/rounds.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Move, Moves, Received, Step, stay
from hdpvfl_mq.privacy.mechanism import unsealed
from hdpvfl_mq.privacy.receiving import receive_planned
from parties.agreement import agreement, hold_agreement
from parties.assets import Assets
from parties.completion import ending
from parties.echo import contradicts, heard_echo
from parties.leaving import leave
from parties.member import SHARED_MOVES
from parties.orders import first_plan, proceed, put_aside
from parties.phases import (
    Accepted,
    ActiveRounds,
    Agreeing,
    Aligned,
    Aligning,
    Leaving,
    Over,
    Training,
    changed,
    checked,
)
from parties.rounds import scoring
from schemas.ids import PartyId
from schemas.messages import ScoreShare


def share(own: Assets, state: Training, given: Received[ScoreShare]) -> Step[Training | Leaving]:
    """Store a passive party's share; the round continues once all shares are there."""
    message, rounds = given.message, checked(ActiveRounds, state.rounds)
    if message.round < state.round:
        return _late(state, given.sender, message.round), ()
    expected = own.release_id(given.sender, "share", state.round)
    if message.round != state.round or message.release.release_id != expected:
        raise PeerError(f"expected the share of round {state.round}")
    if given.sender in rounds.shares:
        raise PeerError(f"a second share of round {state.round}")
    state = heard_echo(state, given.sender, message.orders, message.orders_digest)
    if contradicts(state, given.sender):  # the other echoes are compared with every new order
        return leave(own, state, "orders", about=given.sender)
    plan, release = state.setup.plan, message.release
    if plan.is_sealed:
        release = unsealed(release, own.sealing_key(given.sender, expected))
    values = receive_planned(release, plan.passive_noise, count=plan.share_count(state.round))
    shares = MappingProxyType({**rounds.shares, given.sender: (message.release, values)})
    return proceed(own, changed(state, rounds=changed(rounds, shares=shares)))


def _late(state: Training, sender: PartyId, round_: int) -> Training:
    """Ignore a share of a round that the sender was left out of; each round has one at most."""
    if round_ >= state.away_until.get(sender, 0) or round_ <= state.late.get(sender, -1):
        raise PeerError(f"a share of round {round_}, which is over")
    return changed(state, late=MappingProxyType({**state.late, sender: round_}))


MOVES: Moves = {
    **SHARED_MOVES,
    (Accepted, "agreement"): Move(hold_agreement, ()),
    (Aligning, "agreement"): Move(hold_agreement, ()),
    (Agreeing, "agreement"): Move(agreement, (Agreeing, Aligned, Leaving)),
    (Aligned, "round_plan"): Move(partial(first_plan, take=share), (Training, Leaving)),
    (Aligned, "score_share"): Move(put_aside, ()),
    (Training, "score_share"): Move(share, (Training, Leaving)),
    (Training, "ending"): Move(ending, (Training, Leaving)),
    (Training, "command:ask_scores"): Move(scoring.ask, ()),
    (Training, "score_reply"): Move(scoring.reply, ()),
    (Training, "timer:answer"): Move(scoring.too_late, ()),
    (Training, "command:end_scoring"): Move(scoring.end, ()),
    (Over, "agreement"): Move(stay, ()),
    (Over, "score_share"): Move(stay, ()),
    (Over, "ending"): Move(stay, ()),
    (Over, "score_reply"): Move(stay, ()),
    (Over, "timer:answer"): Move(stay, ()),
}
