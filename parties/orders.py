"""The coordinator's orders in a party: plans of rounds, pauses, going on without somebody.

It owns when a round may run and whom the run waits for; it does not know what a round computes.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Offence, Received, Refused, Send, Step
from parties.assets import Assets
from parties.awaited import awaited
from parties.completion import progress
from parties.echo import contradicted, heard_order, report
from parties.leaving import leave, wronged
from parties.phases import Agreeing, Aligned, Aligning, Leaving, Phase, Training, WithRows
from parties.rounds import ROUNDS
from schemas.ids import COORDINATOR
from schemas.messages import Pause, Residual, Resume, RoundPlan, ScoreShare, Waiting
from schemas.scoring import ScoreQuery

P = TypeVar("P", bound=Phase)
W = TypeVar("W", Aligning, Agreeing)
# How one side handles what the other releases.
Take = Callable[[Assets, Training, Received[Any]], Step[Training | Leaving]]
NEVER = 2**31  # a round that never comes


def first_plan(
    own: Assets, state: Aligned, given: Received[RoundPlan], *, take: Take
) -> Step[Training | Leaving]:
    """Rounds may run: start, and handle messages of peers that got the plan earlier."""
    last = _checked_last(state, given.message, planned=0)
    rounds = ROUNDS[type(state.manifest.method)]
    start = rounds.active_start if own.role == "active" else rounds.passive_start
    training = Training(
        standing=state.standing,
        setup=state.setup,
        session=state.session,
        align_total=state.align_total,
        rounds=start(own, state.setup),
        planned=last,
        terms=state.terms.digest,
        residuals=state.residuals,
    )
    after: Training | Leaving
    after, effects = proceed(own, heard_order(training, given.message))
    for party in sorted(state.early):  # party order: arrival is not information
        if isinstance(after, Training):
            after, more = _late(own, after, state.early[party], take)
            effects = (*effects, *more)
    return after, effects


def _late(
    own: Assets, state: Training, given: Received[Any], take: Take
) -> Step[Training | Leaving]:
    """Handle a message that came early; if it is not a legal move, record that now."""
    try:
        return take(own, state, given)
    except PeerError as refused:
        after, effects = wronged(own, state, Offence(given.sender))
        return after, (Refused(reason=f"{given.sender}, early: {refused}"[:500]), *effects)


def put_aside(
    own: Assets,
    state: Aligned,
    given: Received[ScoreShare] | Received[Residual] | Received[ScoreQuery],
) -> Step[Aligned]:
    """Keep one message of each peer that got the coordinator's plan before this party."""
    if given.sender in state.early:
        raise PeerError(f"{given.sender} has sent a message before the first plan already")
    early = MappingProxyType({**state.early, given.sender: given})
    return replace(state, early=early), ()


def next_plan(own: Assets, state: Training, given: Received[RoundPlan]) -> Step[Training | Leaving]:
    """More rounds may run."""
    last = _checked_last(state, given.message, planned=state.planned)
    state = heard_order(state, given.message)
    if (party := contradicted(state)) is not None:
        return leave(own, state, "orders", about=party)
    return proceed(own, replace(state, planned=last, waiting_for=()))


def _checked_last(state: WithRows, message: RoundPlan, *, planned: int) -> int:
    plan = state.setup.plan
    if message.plan_digest != plan.digest or message.first != planned:
        raise PeerError("the round plan departs from the one this party derived")
    if not message.first < message.last <= plan.rounds:
        raise PeerError("the round plan leaves the schedule")
    return message.last


def proceed(own: Assets, state: Training) -> Step[Training]:
    """Do whatever the current round already allows."""
    rounds = ROUNDS[type(state.manifest.method)]
    step = rounds.active_proceed if own.role == "active" else rounds.passive_proceed
    return step(own, state)


def waited_for(own: Assets, state: P, given: Received[Pause]) -> Step[P]:
    """Store whom the coordinator waits for."""
    return replace(state, waiting_for=given.message.waiting_for), ()


def say_awaited(own: Assets, state: W, given: Received[Pause]) -> Step[W]:
    """The coordinator asks why the run stands still: name whom this party waits for."""
    state = replace(state, waiting_for=given.message.waiting_for)
    return state, (Send((COORDINATOR,), Waiting(waiting_for=awaited(own, state))),)


def pause(own: Assets, state: Training, given: Received[Pause]) -> Step[Training]:
    """The coordinator asks who is present and waits for whom: report."""
    state = replace(state, waiting_for=given.message.waiting_for)
    reported = Send((COORDINATOR,), report(state, last=False))
    if state.manifest.wire < Waiting.in_rounds_since:
        return state, (reported,)
    return state, (reported, Send((COORDINATOR,), Waiting(waiting_for=awaited(own, state))))


def resume(own: Assets, state: Training, given: Received[Resume]) -> Step[Training | Leaving]:
    """Continue without the named parties, if the manifest allows that."""
    message = given.message
    if message.absent and state.manifest.absence == "wait":
        raise PeerError("nobody may be left out of this run: its absence policy is to wait")
    state = heard_order(state, message)
    if (party := contradicted(state)) is not None:
        return leave(own, state, "orders", about=party)
    away = dict.fromkeys(message.absent, NEVER)
    for party in state.away_until:
        if party not in away:
            away[party] = min(state.away_until[party], message.round)
    state = replace(state, waiting_for=(), away_until=MappingProxyType(away))
    return progress(own, state) if state.is_done else proceed(own, state)
