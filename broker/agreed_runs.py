"""A federation's runs before they open and after they close: proposals, answers, stops.

It owns the registrar's moves that concern runs; the coordinator owns the run itself. Proposals are
forwarded and answers counted: a run opens when all its parties have accepted it.
"""

from __future__ import annotations

from dataclasses import replace

from broker.run_phases import (
    AgreedRun,
    Closed,
    Open,
    Opened,
    Over,
    Proposed,
    Refused,
    Stopping,
    is_busy,
    is_stopped,
)
from broker.standing import Standing, in_vain
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
    TimerFired,
    arm,
    command_of,
    dispatch,
    stay,
)
from schemas.base import in_words
from schemas.commands import CannotOpen, CloseRun, EndRun, StopRun
from schemas.config import RunManifest
from schemas.federation import RunAnswer, RunNews, RunProposal, RunStop
from schemas.ids import OLDEST_VERSION, PartyId

IN_VAIN_MAX = 1000  # proposals of one active party that came to nothing since its last run
OPEN_RUNS_MAX = 64  # proposed or open at the same time
ANSWER_S = 7 * 86400.0  # how long a proposal waits for answers


class AgreedRuns:
    """The moves of a registrar that concern runs: each finds its run and makes a move of it."""

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
            refused = Refused(manifest, wrong)
            return state.with_run(manifest.run, refused), (_news((given.sender,), refused),)
        run = Proposed(manifest)
        return state.with_run(manifest.run, run), (
            Send(manifest.passive_parties, RunProposal(manifest=manifest)),
            _news((given.sender,), run),
            arm(f"proposal:{manifest.run}", ANSWER_S),
        )

    def hear(
        self, state: Standing, given: Received[RunAnswer] | Received[RunStop]
    ) -> Step[Standing]:
        """A party answers a proposal, or asks to stop a run."""
        run = state.runs.get(given.message.run)
        if run is None or given.sender not in run.manifest.parties:
            raise PeerError(f"{given.sender} has no part in run {given.message.run}")
        return _moved(state, run, given)

    def stop_here(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """The broker's operator stops a run."""
        run = state.runs.get(command_of(given, StopRun).run)
        if run is None:
            raise PeerError("there is no such run")
        return _moved(state, run, given)

    def late(self, state: Standing, given: TimerFired) -> Step[Standing]:
        """A proposal has waited too long for its answers."""
        run = state.runs.get(given.timer.split(":", maxsplit=1)[1])
        return (state, ()) if run is None else _moved(state, run, given)

    def report(self, state: Standing, given: OperatorCommand) -> Step[Standing]:
        """This broker cannot open a run, or the run's node has closed it or has ended."""
        told = given.command
        assert isinstance(told, CannotOpen | CloseRun | EndRun)
        run = state.runs.get(told.run)
        return (state, ()) if run is None else _moved(state, run, given)


def _moved(state: Standing, run: AgreedRun, given: Input) -> Step[Standing]:
    """Apply one move of the table below."""
    after, effects = dispatch(MOVES, state, run, given)
    return state.with_run(run.manifest.run, after), effects


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
    busy = [run for run in state.runs.values() if is_busy(run)]
    if len(busy) >= OPEN_RUNS_MAX:
        return f"{len(busy)} runs are proposed or open; stop one ('hdpvfl stop RUN'), try again"
    return None


def _in_common_version(state: Standing, manifest: RunManifest) -> RunManifest:
    """The run in the newest version that the broker and all parties speak; each has said hello.

    Parties may overstate theirs; the broker's router cannot forward what it does not speak.
    """
    common = min(state.version, *(state.version_of(party) for party in manifest.parties))
    return RunManifest(**{**dict(manifest), "wire": common})


def _news(to: tuple[PartyId, ...], run: Proposed | Open | Refused) -> Effect:
    news = RunNews(
        run=run.manifest.run,
        phase=run.phase,
        waiting_for=run.waiting_for if isinstance(run, Proposed) else (),
        reason=run.reason if isinstance(run, Refused) else "",
        wire=run.manifest.wire,
    )
    return Send(to, news)


# -- the moves of one run -------------------------------------------------------------------------


def _answer(
    state: Standing, run: Proposed, given: Received[RunAnswer]
) -> Step[Proposed | Open | Refused]:
    """Count an answer; the last acceptance opens the run."""
    message, manifest = given.message, run.manifest
    if given.sender in run.accepted:
        return run, ()
    if not message.accepted:
        return _refused(run, f"{given.sender}: {message.reason}")
    run = replace(run, accepted=run.accepted | {given.sender})
    if run.waiting_for:
        return run, (_news((manifest.active_party,), run),)
    opened = Open(_in_common_version(state, manifest))
    return opened, (_news(manifest.parties, opened),)


def _refused(run: AgreedRun, reason: str) -> Step[Refused]:
    refused = Refused(run.manifest, in_words(reason))
    return refused, (_news(run.manifest.parties, refused),)


def _cancel(
    state: Standing, run: Proposed, given: Received[RunStop] | OperatorCommand
) -> Step[Refused]:
    """Stop a proposal."""
    return _refused(run, _why_stopped(given))


def _stop(state: Standing, run: Open, given: Received[RunStop] | OperatorCommand) -> Step[Stopping]:
    """Ask the coordinator of an open run to close it."""
    return Stopping(run.manifest, in_words(_why_stopped(given))), ()


def _stop_closed(
    state: Standing, run: Closed, given: Received[RunStop] | OperatorCommand
) -> Step[Closed]:
    """Note who asks first to stop a run that its coordinator has closed already."""
    if run.is_stopped:
        return run, ()
    return replace(run, is_stopped=True, reason=in_words(_why_stopped(given))), ()


def _why_stopped(given: Received[RunStop] | OperatorCommand) -> str:
    if isinstance(given, OperatorCommand):
        return "the broker's operator stopped it"
    is_wish = given.message.reason == "operator"
    why = "its operator stopped it" if is_wish else "its data or settings do not allow the run"
    return f"{given.sender}: {why}"


def _late(state: Standing, run: Proposed, given: TimerFired) -> Step[Refused]:
    missing = ", ".join(run.waiting_for)
    return _refused(run, f"no answer of {missing} within {ANSWER_S / 86400:g} days")


def _close(state: Standing, run: Opened, given: OperatorCommand) -> Step[Closed]:
    """It is no longer open, even if a party is away."""
    closed = command_of(given, CloseRun)
    return Closed(run.manifest, closed.outcome, closed.reason, is_stopped(run)), ()


def _end(state: Standing, run: Opened, given: OperatorCommand) -> Step[Over]:
    """Tell the parties whose acknowledgement the run's node did not wait for."""
    ended, manifest = command_of(given, EndRun), run.manifest
    told = tuple(party for party in ended.unheard if party in manifest.parties)
    news = _news(told, Refused(manifest, in_words(f"over: {ended.reason}")))
    return Over(manifest, ended.outcome, ended.reason), (news,) if told else ()


def _cannot_open(
    state: Standing, run: Proposed | Open | Stopping, given: OperatorCommand
) -> Step[Refused]:
    """Tell its parties, which may have opened it."""
    return _refused(run, command_of(given, CannotOpen).reason)


def _cannot_reopen(state: Standing, run: Closed, given: OperatorCommand) -> Step[Over]:
    """Tell its parties, which may wait for the coordinator; its outcome stays."""
    refused, told = _refused(run, command_of(given, CannotOpen).reason)
    return Over(run.manifest, run.outcome, refused.reason), told


# An input that comes too late for a run is ignored: the row of AgreedRun.
MOVES: Moves = {
    (Proposed, "run_answer"): Move(_answer, (Proposed, Open, Refused)),
    (AgreedRun, "run_answer"): Move(stay, ()),
    (Proposed, "timer:proposal"): Move(_late, (Refused,)),
    (AgreedRun, "timer:proposal"): Move(stay, ()),
    (Proposed, "run_stop"): Move(_cancel, (Refused,)),
    (Open, "run_stop"): Move(_stop, (Stopping,)),
    (Closed, "run_stop"): Move(_stop_closed, ()),
    (AgreedRun, "run_stop"): Move(stay, ()),
    (Proposed, "command:stop"): Move(_cancel, (Refused,)),
    (Open, "command:stop"): Move(_stop, (Stopping,)),
    (Closed, "command:stop"): Move(_stop_closed, ()),
    (AgreedRun, "command:stop"): Move(stay, ()),
    (Opened, "command:close"): Move(_close, (Closed,)),
    (AgreedRun, "command:close"): Move(stay, ()),
    (Opened, "command:end"): Move(_end, (Over,)),
    (AgreedRun, "command:end"): Move(stay, ()),
    (Proposed, "command:cannot_open"): Move(_cannot_open, (Refused,)),
    (Open, "command:cannot_open"): Move(_cannot_open, (Refused,)),
    (Stopping, "command:cannot_open"): Move(_cannot_open, (Refused,)),
    (Closed, "command:cannot_open"): Move(_cannot_reopen, (Over,)),
    (AgreedRun, "command:cannot_open"): Move(stay, ()),
}
