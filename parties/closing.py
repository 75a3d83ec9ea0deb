"""Which end of a run a party accepts when the coordinator closes the run.

It owns that decision: a party knows its own plan, so it accepts a run as completed only when its
rounds are done and its peers have signed the same end.
"""

from __future__ import annotations

from dataclasses import replace

from hdpvfl_mq.machine import Finish, Received, Send, Step, TimerFired, arm
from parties.assets import Assets
from parties.completion import is_complete
from parties.leaving import CLOSING_S, close, everybody, kept
from parties.phases import Closed, Leaving, Running, Training, WithRows
from schemas.ids import COORDINATOR
from schemas.messages import RunClosed, Withdraw


def closed(own: Assets, state: Running, given: Received[RunClosed]) -> Step[Closed]:
    """The coordinator closes the run: accept an outcome that fits what this party has done."""
    outcome, reason = given.message.outcome, given.message.reason
    if (wrong := _misfit(own, state, outcome)) is not None:
        after = Closed(**kept(state), outcome="mismatch", reason=wrong)
        word = Withdraw(reason="end", about=COORDINATOR)
        return after, (Send(everybody(own, state), word), Finish(outcome="mismatch"))
    # This party's own reason says more: it names columns and rows.
    return close(state, outcome, state.reason or reason)


def _misfit(own: Assets, state: Running, outcome: str) -> str | None:
    if outcome == "completed" and not is_complete(own, state):
        done = state.round if isinstance(state, Training) else 0
        planned = state.setup.plan.rounds if isinstance(state, WithRows) else "all"
        return (
            f"the coordinator says that the run is completed; this party has done {done} of "
            f"{planned} rounds, or lacks its peers' signatures: there is no model"
        )
    if outcome == "refused" and isinstance(state, WithRows):
        return "the coordinator says that a party refused the run, but all had accepted it"
    return None


def closed_training(
    own: Assets, state: Training, given: Received[RunClosed]
) -> Step[Training | Closed]:
    """The coordinator closes a run in training; a party that was left out may have to catch up."""
    is_left_out = given.message.outcome == "completed" and state.is_away(own.party)
    if is_left_out and not is_complete(own, state):
        return replace(state, is_closing=True), (arm("closing", CLOSING_S),)
    return closed(own, state, given)


def closed_leaving(own: Assets, state: Leaving, given: Received[RunClosed]) -> Step[Closed]:
    """The coordinator confirms that the run is over, or it was completed before somebody left."""
    message = given.message
    if message.outcome == "completed":
        if is_complete(own, state.trained):
            return close(state, "completed", "")
        return close(state, state.outcome, state.reason)
    return close(state, message.outcome, state.reason or message.reason)


def caught_up(own: Assets, state: Training, given: TimerFired) -> Step[Training | Closed]:
    """The others have completed without this party: check whether it has caught up in time."""
    if not state.is_closing:
        return state, ()
    if is_complete(own, state):
        return close(state, "completed", "")
    rounds = f"{state.round} of {state.setup.plan.rounds} rounds"
    return close(
        state,
        "incomplete",
        f"the others have completed the run without this party, which has done {rounds}",
    )
