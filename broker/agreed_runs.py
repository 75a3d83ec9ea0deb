"""A federation's runs before they open and after they close: proposals, answers, stops.

It owns the registrar's moves that concern runs; the coordinator owns the run itself. Proposals are
forwarded and answers counted: a run opens when all its parties have accepted it.
"""

from __future__ import annotations

from dataclasses import replace

from broker.standing import AgreedRun, Standing, in_vain
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Effect,
    OperatorCommand,
    Received,
    Send,
    Step,
    TimerFired,
    arm,
    command_of,
)
from schemas.base import in_words
from schemas.commands import CannotOpen, CloseRun, EndRun, StopRun
from schemas.config import RunManifest
from schemas.federation import RunAnswer, RunNews, RunProposal, RunStop
from schemas.ids import COORDINATOR, OLDEST_VERSION, PartyId, RunId

IN_VAIN_MAX = 1000  # proposals of one active party that came to nothing since its last run
OPEN_RUNS_MAX = 64  # proposed or open at the same time
ANSWER_S = 7 * 86400.0  # how long a proposal waits for answers


class AgreedRuns:
    """The moves of a registrar that concern runs."""

    def propose(self, state: Standing, given: Received[RunProposal]) -> Step[Standing]:
        """Forward a proposal, or tell the proposer why it is refused."""
        manifest = given.message.manifest
        if manifest.run in state.runs:
            raise PeerError(f"run {manifest.run} is known already")
        if manifest.active_party != given.sender:
            raise PeerError("only the active party may propose a run")
        if in_vain(state.runs.values(), given.sender) >= IN_VAIN_MAX:
            raise PeerError(f"{IN_VAIN_MAX} proposals of {given.sender} came to nothing")
        wrong = _unfit(state, manifest)
        if wrong is not None:
            run = AgreedRun(manifest, "refused", reason=wrong)
            return state.with_run(manifest.run, run), (_news((given.sender,), run),)
        run = AgreedRun(manifest, "proposed")
        return state.with_run(manifest.run, run), (
            Send(manifest.passive_parties, RunProposal(manifest=manifest)),
            _news((given.sender,), run),
            arm(f"proposal:{manifest.run}", ANSWER_S),
        )

    def answer(self, state: Standing, given: Received[RunAnswer]) -> Step[Standing]:
        """Count an answer; the last acceptance opens the run."""
        message = given.message
        run = _run_of(state, message.run, given.sender)
        if run.phase != "proposed" or given.sender in run.accepted:
            return state, ()  # refused or stopped in the meantime
        if not message.accepted:
            return self._refuse(state, run, f"{given.sender}: {message.reason}")
        run = replace(run, accepted=run.accepted | {given.sender})
        if run.waiting_for:
            return state.with_run(message.run, run), (_news((run.manifest.active_party,), run),)
        run = replace(run, phase="open", manifest=_in_common_version(state, run.manifest))
        return state.with_run(message.run, run), (_news(run.manifest.parties, run),)

    def _refuse(self, state: Standing, run: AgreedRun, reason: str) -> Step[Standing]:
        run = replace(run, phase="refused", reason=in_words(reason))
        return state.with_run(run.manifest.run, run), (_news(run.manifest.parties, run),)

    def stop(self, state: Standing, given: Received[RunStop]) -> Step[Standing]:
        """A party cancels a proposal, or asks the coordinator of an open run to close it."""
        run = _run_of(state, given.message.run, given.sender)
        why = "its operator stopped it" if given.message.reason == "operator" else _UNFIT
        return self._stop(state, run, given.sender, f"{given.sender}: {why}")

    def stop_here(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The broker's operator stops a run."""
        run = state.runs.get(command_of(given, StopRun).run)
        if run is None:
            raise PeerError("there is no such run")
        return self._stop(state, run, COORDINATOR, "the broker's operator stopped it")

    def _stop(self, state: Standing, run: AgreedRun, party: PartyId, reason: str) -> Step[Standing]:
        if run.phase == "proposed":
            return self._refuse(state, run, reason)
        if run.phase == "open" and run.stopped_by is None:
            run = replace(run, stopped_by=party, reason=in_words(reason))
            return state.with_run(run.manifest.run, run), ()
        return state, ()

    def late(self, state: Standing, given: TimerFired) -> Step[Standing]:
        """A proposal has waited too long for its answers."""
        run = state.runs.get(given.timer.split(":", maxsplit=1)[1])
        if run is None or run.phase != "proposed":
            return state, ()
        missing = ", ".join(run.waiting_for)
        return self._refuse(state, run, f"no answer of {missing} within {ANSWER_S / 86400:g} days")

    def end(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The run's node has ended: tell the parties whose acknowledgement it did not wait for."""
        ended = command_of(given, EndRun)
        run = state.runs.get(ended.run)
        if run is None or run.phase != "open":
            return state, ()
        run = replace(run, phase="over", outcome=ended.outcome, reason=ended.reason)
        told = tuple(party for party in ended.unheard if party in run.manifest.parties)
        news = _news(told, replace(run, phase="refused", reason=in_words(f"over: {run.reason}")))
        return state.with_run(ended.run, run), (news,) if told else ()

    def close(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The run's coordinator has closed it: it is no longer open, even if a party is away."""
        closed = command_of(given, CloseRun)
        run = state.runs.get(closed.run)
        if run is None or run.phase != "open":
            return state, ()
        run = replace(run, outcome=closed.outcome, reason=closed.reason)
        return state.with_run(closed.run, run), ()

    def cannot_open(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The broker cannot open a run: tell its parties, which may have opened it."""
        asked = command_of(given, CannotOpen)
        run = state.runs.get(asked.run)
        if run is None or run.phase not in ("proposed", "open"):
            return state, ()
        return self._refuse(state, run, asked.reason)


_UNFIT = "its data or settings do not allow the run"


def _unfit(state: Standing, manifest: RunManifest) -> str | None:
    """Why the federation refuses a proposal."""
    strangers = [p for p in manifest.parties if p not in state.members]
    if strangers:
        return f"{', '.join(strangers)} do not belong to this federation; see 'hdpvfl status'"
    wrong = [p for p in manifest.passive_parties if state.members[p].role != "passive"]
    if wrong:
        return f"{', '.join(wrong)} joined as active; a run has one active party"
    if manifest.wire != OLDEST_VERSION:
        return "leave 'wire' out: the parties' versions are known when the run opens"
    busy = [run for run in state.runs.values() if run.is_busy]
    if len(busy) >= OPEN_RUNS_MAX:
        return f"{len(busy)} runs are proposed or open; stop one ('hdpvfl stop RUN'), try again"
    return None


def _in_common_version(state: Standing, manifest: RunManifest) -> RunManifest:
    """The run in the newest version that the broker and all parties speak; each has said hello.

    Parties may overstate theirs; the broker's router cannot forward what it does not speak.
    """
    common = min(state.version, *(state.version_of(party) for party in manifest.parties))
    return RunManifest(**{**dict(manifest), "wire": common})


def _run_of(state: Standing, name: RunId, sender: PartyId) -> AgreedRun:
    run = state.runs.get(name)
    if run is None or sender not in run.manifest.parties:
        raise PeerError(f"{sender} has no part in run {name}")
    return run


def _news(to: tuple[PartyId, ...], run: AgreedRun) -> Effect:
    news = RunNews(
        run=run.manifest.run,
        phase=run.phase,
        waiting_for=run.waiting_for,
        reason=run.reason,
        wire=run.manifest.wire,
    )
    return Send(to, news)
