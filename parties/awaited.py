"""Whom a party waits for: the peers whose next message it needs.

It owns that question for every phase; the coordinator's answer to it is in the phase's own
`waiting_for`. It makes no move.
"""

from __future__ import annotations

from parties.assets import Assets
from parties.phases import ActiveRounds, Agreeing, Aligning, PassiveRounds, Phase, Training
from schemas.ids import PartyId


def awaited(own: Assets, state: Phase) -> tuple[PartyId, ...]:
    """The peers whose next message this party needs now; none where the coordinator decides."""
    match state:
        case Aligning(session=session):
            return session.waiting_for
        case Agreeing() if own.role == "passive":
            return (state.manifest.active_party,)
        case Agreeing(agreements=agreements):
            return tuple(p for p in state.manifest.passive_parties if p not in agreements)
        case Training():
            return _in_training(own, state)
        case _:
            return ()


def _in_training(own: Assets, state: Training) -> tuple[PartyId, ...]:
    rounds, parties = state.rounds, state.manifest.parties
    present = tuple(p for p in parties if p != own.party and not state.is_away(p))
    if state.is_done:
        return _at_the_end(own, state, present)
    if isinstance(rounds, PassiveRounds):
        # A party that was left out needs the residuals of the rounds that ran without it.
        is_behind = bool(state.away_until) and state.round < state.planned
        is_waiting = is_behind or rounds.shared == state.round
        return (state.manifest.active_party,) if is_waiting else ()
    if not isinstance(rounds, ActiveRounds) or state.round >= state.planned:
        return ()
    return tuple(p for p in present if rounds.needs(p))


def _at_the_end(own: Assets, state: Training, present: tuple[PartyId, ...]) -> tuple[PartyId, ...]:
    """Those whose signature under the end, or under this party's ledger, is missing."""
    unsigned = tuple(p for p in present if p not in state.endings)
    if unsigned and own.role == "passive":
        return (state.manifest.active_party,)  # which forwards all signatures under the end
    witnesses = frozenset() if state.is_away(own.party) else state.witnesses_of(own.party)
    unwitnessed = witnesses - state.witnesses
    return tuple(p for p in present if p in unsigned or p in unwitnessed)
