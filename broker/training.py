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
from schemas.messages import Pause, Resume, RoundPlan, RoundReport


class CoordinatorRounds(Closing):
    """The part of the coordinator's role that runs the rounds."""

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
        for party, (theirs, other) in sorted(state.residuals.items()):
            if theirs == count and other != digest:
                return party
        return None

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
        again = arm("watch", self.manifest.absent_after_s)
        silent = self.waiting_for(state) - state.heard
        state = replace(state, heard=frozenset())
        if not silent:
            if not state.asked:
                return state, (again,)
            return replace(state, asked=False), (Send(self.parties, _resume(state)), again)
        if not state.asked:
            pause = Pause(waiting_for=tuple(sorted(silent)))
            return replace(state, asked=True), (Send(self.parties, pause), again)
        if self.manifest.absence == "wait" or self.manifest.active_party in silent:
            return state, (again,)
        state = replace(state, absent=state.absent | silent, asked=False)
        effects: tuple[Effect, ...] = (Send(self.parties, _resume(state)), again)
        state, more = self.plan_ahead(state)
        return state, (*effects, *more)

    def readmit(self, state: Training, party: PartyId) -> Step[Training]:
        """A party is back: it takes part again from the first round that is not yet planned."""
        state = replace(state, absent=state.absent - {party})
        return state, (Send(self.parties, _resume(state)),)


def _resume(state: Training) -> Resume:
    """Names the absent parties; a party that is back takes part from the first unplanned round."""
    return Resume(round=state.planned, absent=tuple(sorted(state.absent)))
