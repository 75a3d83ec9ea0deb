"""The rounds of a run at the coordinator: which may run, and what happens when a party is silent.

It owns the moves within `Training`: reports, the plan of further rounds, absence. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from broker.closing import Closing
from broker.phases import Closed, Training
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Effect, Received, Send, Step, TimerFired, arm
from schemas.ids import PartyId
from schemas.messages import Pause, Resume, RoundPlan, RoundReport, Waiting

# To ask whom a crowd waits for takes a message to all parties and one from each.
WATCH_PARTY_S = 0.25


class CoordinatorRounds(Closing):
    """The part of the coordinator's role that runs the rounds."""

    @property
    def _watch_s(self) -> float:
        """How long to wait until silent parties are asked for, or told of, again."""
        return max(self.manifest.absent_after_s, WATCH_PARTY_S * len(self.parties))

    def report(
        self, state: Training, given: Received[RoundReport]
    ) -> Step[Training] | Step[Closed]:
        message = given.message
        if message.rounds_done > state.planned:
            raise PeerError(f"reports {message.rounds_done} rounds where {state.planned} may run")
        done = max(message.rounds_done, state.finished_rounds[given.sender])
        heard = (message.residuals, message.residuals_digest)
        state = replace(
            state,
            finished_rounds=MappingProxyType({**state.finished_rounds, given.sender: done}),
            finished=state.finished | ({given.sender} if message.last else frozenset()),
            residuals=MappingProxyType({**state.residuals, given.sender: heard}),
        )
        if (other := self._contradicted(state, given.sender)) is not None:
            active = self.manifest.active_party
            return self.close(
                state,
                "mismatch",
                f"{given.sender} and {other} have not had the same residuals of {active}, or one "
                "of them says so: their journals show who lies",
            )
        if not self.waiting_for(state):
            return self.close(state, "completed", "")
        effects: tuple[Effect, ...] = ()
        if given.sender in state.absent:
            state, effects = self.readmit(state, given.sender)
        state, more = self.plan_ahead(state)
        return state, (*effects, *more)

    def _contradicted(self, state: Training, sender: PartyId) -> PartyId | None:
        """A party that reports as many residuals as the sender, but a different hash of them."""
        count, digest = state.residuals[sender]
        others = state.residuals.items()
        return min((p for p, (n, other) in others if n == count and other != digest), default=None)

    def plan_ahead(self, state: Training) -> Step[Training]:
        """Allow more rounds before any party has to wait for permission."""
        present = [p for p in self.parties if p not in state.absent]
        slowest = min(state.finished_rounds[p] for p in present)
        ahead = self.manifest.rounds_ahead
        if state.planned >= state.rounds or state.planned - slowest > ahead // 2:
            return state, ()
        last = min(state.rounds, state.planned + ahead)
        plan = RoundPlan(first=state.planned, last=last, plan_digest=state.plan_digest)
        return replace(state, planned=last), (Send(self.parties, plan),)

    def watch(self, state: Training, given: TimerFired) -> Step[Training]:
        """Ask silent parties; if they do not answer, apply the manifest's absence policy."""
        again = arm("watch", self._watch_s)
        silent = self.waiting_for(state) - state.heard
        state = replace(state, heard=frozenset())
        if not state.asked:
            state, effects = self._ask(state, silent)
            return state, (*effects, again)
        if not silent or self.manifest.absence == "wait" or self.manifest.active_party in silent:
            state, effects = self._tell(state, silent)
            return state, (*effects, again)
        state, effects = self._go_on(replace(state, absent=state.absent | silent))
        state, more = self.plan_ahead(state)
        return state, (*effects, again, *more)

    def _ask(self, state: Training, silent: frozenset[PartyId]) -> Step[Training]:
        """Ask who is present and waits for whom, unless the run goes on."""
        has_moved = state.reached > state.announced_at
        if not silent and (has_moved or not state.announced):
            return self._go_on(state) if state.announced else (state, ())
        # A silent party may be the one that is kept waiting: from version 2 on it can say so.
        announced = state.announced if self._is_answered else silent
        asking = replace(state, asked=True, announced=announced, waits=MappingProxyType({}))
        return asking, (Send(self.parties, Pause(waiting_for=tuple(sorted(announced)))),)

    def _tell(self, state: Training, silent: frozenset[PartyId]) -> Step[Training]:
        """Tell all parties who keeps the run waiting: who has not answered, or who was named."""
        delaying = silent or state.delaying
        if not delaying:
            return self._go_on(state)
        if not self._is_answered:
            return state, ()
        after = replace(state, asked=False, announced=delaying, announced_at=state.reached)
        if delaying == state.announced:
            return after, ()
        return after, (Send(self.parties, Pause(waiting_for=tuple(sorted(delaying)))),)

    @property
    def _is_answered(self) -> bool:
        """Whether parties answer a pause in a round by naming whom they wait for."""
        return self.manifest.wire >= Waiting.in_rounds_since

    def _go_on(self, state: Training) -> Step[Training]:
        """Nobody keeps the run waiting any more."""
        after = replace(state, asked=False, announced=frozenset())
        return after, (Send(self.parties, _resume(state)),)

    def readmit(self, state: Training, party: PartyId) -> Step[Training]:
        """A party is back: it takes part again from the first round that is not yet planned."""
        state = replace(state, absent=state.absent - {party})
        return state, (Send(self.parties, _resume(state)),)


def _resume(state: Training) -> Resume:
    """Names the absent parties; a party that is back takes part from the first unplanned round."""
    return Resume(round=state.planned, absent=tuple(sorted(state.absent)))
