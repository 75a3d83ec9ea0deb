"""A member's runs before they open and after they close: proposing, being asked, ending.

It owns these moves; the run's own role decides what the run does. The policy and the operator
decide whether to accept a proposal, and their answers are recorded inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    Input,
    Move,
    Moves,
    OperatorCommand,
    Received,
    Send,
    Step,
    command_of,
    dispatch,
    stay,
)
from parties.belonging import Belonging
from parties.refusals import ASKED_MAX, waiting
from parties.run_phases import Asked, KnownRun, Open, Over, Proposed, Refused, Willing
from schemas.commands import AnswerRun, EndRun, ProposeRun, StopRun
from schemas.config import RunManifest
from schemas.federation import RunAnswer, RunNews, RunProposal, RunStop
from schemas.ids import COORDINATOR, PartyId

_WillingT = TypeVar("_WillingT", bound=Willing)


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
        run = Proposed(
            manifest,
            rows=asked.rows,
            out=asked.out,
            is_session=asked.session,
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
        return state.with_run(manifest.run, Asked(manifest)), ()

    def answer(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Accept or refuse a proposal, once."""
        said = command_of(given, AnswerRun)
        run = state.runs.get(said.run)
        if not isinstance(run, Asked):
            raise PeerError(f"run {said.run} waits for no answer")
        return self._moved(state, run, given)

    def news(self, state: Belonging, given: Received[RunNews]) -> Step[Belonging]:
        """The registrar reports the phase of a run this party knows."""
        run = state.runs.get(given.message.run)
        if run is None:
            raise PeerError("news of a run this party was never asked for")
        return self._moved(state, run, given)

    # -- ending -------------------------------------------------------------------------------

    def stop(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """Ask the registrar to stop a run; a run that is open here also withdraws by itself."""
        asked = command_of(given, StopRun)
        run = state.runs.get(asked.run)
        if run is None or isinstance(run, Refused | Over):
            raise PeerError(f"run {asked.run} is neither proposed nor open")
        return self._moved(state, run, given)

    def end(self, state: Belonging, given: OperatorCommand) -> Step[Belonging]:
        """The run has ended in this process."""
        run = state.runs.get(command_of(given, EndRun).run)
        return (state, ()) if run is None else self._moved(state, run, given)

    def _moved(self, state: Belonging, run: KnownRun, given: Input) -> Step[Belonging]:
        """Apply one move of the table below."""
        after, effects = dispatch(MOVES, self, run, given)
        return state.with_run(run.manifest.run, after), effects


# -- the moves of one run -------------------------------------------------------------------------


def _answer(own: Proposals, run: Asked, given: OperatorCommand) -> Step[Proposed | Refused]:
    """Accept or refuse a proposal."""
    said, manifest = command_of(given, AnswerRun), run.manifest
    answer = RunAnswer(run=said.run, accepted=said.accepted, reason=said.reason)
    after = (
        Proposed(manifest, reason=said.reason)
        if said.accepted
        else Refused(manifest, reason=said.reason)
    )
    return after, (Send((COORDINATOR,), answer),)


def _news_when_asked(own: Proposals, run: Asked, given: Received[RunNews]) -> Step[Refused]:
    """Only a refusal needs no answer of this party."""
    news = _before_over(given)
    if news.phase != "refused":
        raise PeerError("news of a run that this party has not accepted")
    return Refused(_in_version(run, news), news.reason), ()


def _news_when_proposed(
    own: Proposals, run: Proposed, given: Received[RunNews]
) -> Step[Proposed | Open | Refused]:
    """Another party has answered."""
    news = _before_over(given)
    manifest, reason = _in_version(run, news), news.reason or run.reason
    if news.phase == "refused":
        return Refused(manifest, reason), ()
    if news.phase == "proposed":
        waiting_for = news.waiting_for
        return replace(run, manifest=manifest, reason=reason, waiting_for=waiting_for), ()
    opened = Open(manifest, rows=run.rows, out=run.out, is_session=run.is_session, reason=reason)
    return opened, ()


def _news_when_open(own: Proposals, run: Open, given: Received[RunNews]) -> Step[Refused]:
    """The broker could not open it, or the run's own stream has not reached this party."""
    news = _before_over(given)
    if news.phase != "refused":
        raise PeerError("the run is already open")
    return Refused(_in_version(run, news), news.reason or run.reason), ()


def _before_over(given: Received[RunNews]) -> RunNews:
    if given.message.phase == "over":
        raise PeerError("a run's own stream says when it is over")
    return given.message


def _in_version(run: KnownRun, news: RunNews) -> RunManifest:
    return RunManifest(**{**dict(run.manifest), "wire": news.wire})


def _decline(own: Proposals, run: Asked, given: OperatorCommand) -> Step[Refused]:
    """The stop also answers the proposal."""
    return Refused(run.manifest, "stopped here"), (_stop_of(given),)


def _stop(own: Proposals, run: _WillingT, given: OperatorCommand) -> Step[_WillingT]:
    """The registrar says what becomes of it."""
    return run, (_stop_of(given),)


def _stop_of(given: OperatorCommand) -> Effect:
    asked = command_of(given, StopRun)
    return Send((COORDINATOR,), RunStop(run=asked.run, reason=asked.reason))


def _end(own: Proposals, run: KnownRun, given: OperatorCommand) -> Step[Over]:
    ended = command_of(given, EndRun)
    return Over(run.manifest, ended.outcome, ended.reason), ()


MOVES: Moves = {
    (Asked, "command:answer"): Move(_answer, (Proposed, Refused)),
    (Asked, "run_news"): Move(_news_when_asked, (Refused,)),
    (Proposed, "run_news"): Move(_news_when_proposed, (Proposed, Open, Refused)),
    (Open, "run_news"): Move(_news_when_open, (Refused,)),
    (Refused, "run_news"): Move(stay, ()),  # already over for this party
    (Over, "run_news"): Move(stay, ()),
    (Asked, "command:stop"): Move(_decline, (Refused,)),
    (Willing, "command:stop"): Move(_stop, ()),
    (KnownRun, "command:end"): Move(_end, (Over,)),
    (Over, "command:end"): Move(stay, ()),
}
