"""A member's runs before they open and after they close: proposing, being asked, ending.

It owns these moves; the run's own role decides what the run does. The policy and the operator
decide whether to accept a proposal, and their answers are recorded inputs.
"""

from __future__ import annotations

from dataclasses import replace

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import OperatorCommand, Received, Send, Step, command_of
from parties.belonging import Belonging, KnownPhase, KnownRun
from parties.refusals import ASKED_MAX, waiting
from schemas.commands import AnswerRun, EndRun, ProposeRun, StopRun
from schemas.config import RunManifest
from schemas.federation import RunAnswer, RunNews, RunProposal, RunStop
from schemas.ids import COORDINATOR, PartyId


class Proposals:
    """The moves of one member that concern runs."""

    name: PartyId

    def propose(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Propose a run to the others, as its active party."""
        asked = command_of(given, ProposeRun)
        manifest = asked.manifest
        if manifest.run in state.runs:
            raise PeerError(f"run {manifest.run} is known already")
        if manifest.active_party != self.name:
            raise PeerError("only the active party may propose a run")
        run = KnownRun(
            manifest,
            "proposed",
            asked.rows,
            asked.out,
            asked.session,
            waiting_for=manifest.passive_parties,
        )
        proposal = RunProposal(manifest=manifest)
        return state.with_run(manifest.run, run), (Send((COORDINATOR,), proposal),)

    # -- being asked --------------------------------------------------------------------------

    def asked(self, state: Belonging, given: Received[RunProposal]) -> Step[Belonging]:
        """A proposal has arrived: the policy or the operator must answer it."""
        manifest = given.message.manifest
        if manifest.run in state.runs:
            raise PeerError(f"run {manifest.run} is known already")
        if self.name not in manifest.passive_parties:
            raise PeerError("this party is not a passive party of the proposed run")
        if waiting(state.runs.values(), manifest.active_party) >= ASKED_MAX:
            raise PeerError(f"{ASKED_MAX} proposals of {manifest.active_party} wait for answers")
        return state.with_run(manifest.run, KnownRun(manifest, "asked")), ()

    def answer(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Accept or refuse a proposal, once."""
        said = command_of(given, AnswerRun)
        run = state.runs.get(said.run)
        if run is None or run.phase != "asked":
            raise PeerError(f"run {said.run} waits for no answer")
        phase: KnownPhase = "proposed" if said.accepted else "refused"
        run = replace(run, phase=phase, reason=said.reason)
        answer = RunAnswer(run=said.run, accepted=said.accepted, reason=said.reason)
        return state.with_run(said.run, run), (Send((COORDINATOR,), answer),)

    def news(self, state: Belonging, given: Received[RunNews]) -> Step[Belonging]:
        """The registrar reports the phase of a run this party knows."""
        message = given.message
        run = state.runs.get(message.run)
        if run is None:
            raise PeerError("news of a run this party was never asked for")
        if run.phase in ("refused", "over"):
            return state, ()  # already over for this party
        if message.phase == "over":
            raise PeerError("a run's own stream says when it is over")
        if message.phase != "refused" and run.phase == "asked":
            raise PeerError("news of a run that this party has not accepted")
        if message.phase != "refused" and run.phase == "open":
            raise PeerError("the run is already open")
        run = replace(
            run,
            manifest=RunManifest(**{**dict(run.manifest), "wire": message.wire}),
            phase=message.phase,
            waiting_for=message.waiting_for,
            reason=message.reason or run.reason,
        )
        return state.with_run(message.run, run), ()

    # -- ending -------------------------------------------------------------------------------

    def stop(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Ask the registrar to stop a run; a run that is open here also withdraws by itself."""
        asked = command_of(given, StopRun)
        run = state.runs.get(asked.run)
        if run is None or run.phase in ("refused", "over"):
            raise PeerError(f"run {asked.run} is neither proposed nor open")
        stop = RunStop(run=asked.run, reason=asked.reason)
        if run.phase == "asked":  # the stop also answers the proposal
            run = replace(run, phase="refused", reason="stopped here")
            return state.with_run(asked.run, run), (Send((COORDINATOR,), stop),)
        return state, (Send((COORDINATOR,), stop),)

    def end(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """The run has ended in this process."""
        ended = command_of(given, EndRun)
        run = state.runs.get(ended.run)
        if run is None or run.phase == "over":
            return state, ()
        run = replace(run, phase="over", waiting_for=(), outcome=ended.outcome, reason=ended.reason)
        return state.with_run(ended.run, run), ()
