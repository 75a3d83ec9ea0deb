"""The broker's service: any number of federations and, for each, any number of runs.

It owns the tasks and the operator's commands; what may pass is the switchboard's business, what a
run does next its coordinator's, and which runs there are the registrars'.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from broker.hosting import HostedFederation, HostedRun
from broker.lobby import Lobby
from broker.registrar import AgreedRun, Seat, Standing, describe
from broker.switchboard import seats_of
from hdpvfl_mq import __version__
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.runtime import logs
from hdpvfl_mq.runtime.control import Answer, Control
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.runner import Runner, Stopped
from hdpvfl_mq.runtime.settings import dump_settings, load_settings
from schemas.base import in_words
from schemas.config import BrokerServiceSettings, BrokerSettings, Member
from schemas.federation import (
    EndRun,
    OperatorCommand,
    RemoveMember,
    SeatMember,
    StopRun,
)
from schemas.ids import PartyId, RunId
from schemas.records import OperatorRequest

BROKER = "broker"  # the folder in `state`


class BrokerService(Lobby):
    """The broker of federations: it stands."""

    def __init__(self, settings: BrokerServiceSettings) -> None:
        super().__init__(settings.bind, load_keys(Path(settings.keys)))
        self.settings = settings
        self.state = Path(settings.state) / BROKER
        self.federations: dict[RunId, HostedFederation] = {}
        for federation in settings.federations:
            hosted = HostedFederation(
                federation.name, self.keys, state=self.state, forward=self.forward
            )
            self.federations[federation.name] = hosted
            self.add(federation.name, hosted)
        self._runners: dict[RunId, Runner] = {}
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None

    # -- life ---------------------------------------------------------------------------------

    async def run(self) -> str:
        """Until it is stopped; an error that no run may survive ends it."""
        logs.begin(self.settings.log)
        self._seat_members()
        self.open()
        control = Control(self.state, self.handle)
        await control.open()
        names = list(self.federations)
        logs.say("service_started", address=self.settings.bind, federation=names)
        try:
            for task in self.gate.tasks:
                task.add_done_callback(self._ended)
            self._start(self.read())
            for federation in self.federations.values():
                self._reconcile(federation)
                self._start(_forever(federation.runner))
            await self._stopped.wait()
            await self._end_tasks()
        finally:
            control.close()
            self.gate.close()
            for hosted in self.table.values():
                hosted.node.close()
        if self._failed is not None:
            raise self._failed
        logs.say("service_stopped", federation=names)
        raise Stopped

    def stop(self) -> None:
        """End after the current turns."""
        self._stopped.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failed = None if task.cancelled() else task.exception()
        if failed is not None and not isinstance(failed, Stopped):
            self._failed = self._failed or failed
            self._stopped.set()

    async def _end_tasks(self) -> None:
        runners = [f.runner for f in self.federations.values() if f.runner is not None]
        for runner in (*runners, *self._runners.values()):
            runner.stop()
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=0.5)
            for task in pending:
                task.cancel()

    # -- members ------------------------------------------------------------------------------

    def _seat_members(self) -> None:
        """Members of the settings that their registrar does not know like this."""
        for federation in self.settings.federations:
            hosted = self.federations[federation.name]
            hosted.connect(lambda node, hosted=hosted: self._reconcile(hosted))  # type: ignore[misc]
            wanted = seats_of(federation.members)
            known = hosted.standing.members
            events = [_seated(p, seat) for p, seat in wanted.items() if known.get(p) != seat]
            hosted.node.turn((), events)  # before anybody can knock
            hosted.admit()
        self.admit()

    # -- runs ---------------------------------------------------------------------------------

    def _reconcile(self, federation: HostedFederation) -> None:
        """Let members in, open what they agreed on, close what one of them stopped."""
        federation.admit()
        self.admit()
        self.open_or_close_lobby()
        for name, run in federation.standing.runs.items():
            if run.phase == "open" and name not in self._runners:
                self._open(federation, name, run)
            runner = self._runners.get(name)
            hosted = self.table.get(name)
            if run.stopped_by and runner and hosted and hosted.node.outcome is None:
                runner.give(OperatorRequest(request="close"))

    def _open(self, federation: HostedFederation, name: RunId, run: AgreedRun) -> None:
        if name in self.table:
            taken = "the broker has a run or federation of this name: choose another"
            self.give(federation, EndRun(run=name, outcome="refused", reason=taken))
            return
        seats = self._seats_of_run(federation.standing, name, run)
        hosted = HostedRun(
            run.manifest, seats, self.keys, runs=Path(self.settings.runs), forward=self.forward
        )
        self._runners[name] = hosted.runner(patience_s=math.inf, farewell_s=math.inf)
        self.add(name, hosted)
        is_new = hosted.node.steps == 0
        logs.say("run_opened" if is_new else "run_resumed", run=name, federation=federation.name)
        self._start(self._serve(federation, name, hosted))

    def _seats_of_run(
        self, standing: Standing, name: RunId, run: AgreedRun
    ) -> Mapping[PartyId, Seat]:
        """The members' keys when the run opened, kept in its folder."""
        folder = Path(self.settings.runs) / name / "coordinator"
        path = folder / "settings.toml"
        if not path.exists():
            members = tuple(
                Member(
                    party=party,
                    role="active" if party == run.manifest.active_party else "passive",
                    verify_key=standing.members[party].verify_key.hex(),
                    curve_key=standing.members[party].curve_key.hex(),
                )
                for party in run.manifest.parties
            )
            made = BrokerSettings(
                bind=self.settings.bind,
                keys=self.settings.keys,
                manifest=str(folder / "manifest.toml"),
                runs=self.settings.runs,
                members=members,
            )
            write_private(folder / "manifest.toml", dump_settings(run.manifest), durable=True)
            write_private(path, dump_settings(made), durable=True)
        return seats_of(load_settings(BrokerSettings, path).members)

    async def _serve(self, federation: HostedFederation, name: RunId, hosted: HostedRun) -> None:
        hosted.observe(hosted.node)
        outcome = await self._runners[name].run()
        hosted.finish()
        reason = str(hosted.node.state.reason)
        logs.say("run_over", run=name, outcome=outcome, reason=reason)
        self.give(federation, EndRun(run=name, outcome=outcome, reason=in_words(reason)))
        del self.table[name], self._runners[name]
        hosted.node.close()
        self.admit()

    # -- the operator -------------------------------------------------------------------------

    async def handle(self, asked: dict[str, Any]) -> Answer:
        """One command of the broker's operator."""
        if asked.get("command") in ("status", "runs"):
            return self._status()
        if asked.get("command") == "stop":
            federation = self._federation_of(str(asked.get("run")))
            self.give(federation, StopRun(run=str(asked["run"]), reason="operator"))
            return {"run": asked["run"]}
        if asked.get("command") == "invite":
            return self.invite(asked)
        if asked.get("command") == "remove":
            hosted = self.federation_of(asked)
            if str(asked.get("party")) not in hosted.standing.members:
                raise OperatorError(f"{asked.get('party')} is no member; see 'hdpvfl status'")
            self.give(hosted, RemoveMember(party=str(asked["party"])))
            return {"party": asked["party"]}
        raise OperatorError(f"{asked.get('command')!r} is no command of a broker's service")

    def _federation_of(self, run: RunId) -> HostedFederation:
        for federation in self.federations.values():
            if run in federation.standing.runs:
                return federation
        raise OperatorError(f"there is no run {run}; see 'hdpvfl runs'")

    def _status(self) -> Answer:
        shown = {}
        for name, federation in self.federations.items():
            standing = federation.standing
            shown[name] = {
                "members": {p: seat.role for p, seat in sorted(standing.members.items())},
                "connected": list(federation.router.connected),
                "runs": {run: self._run(run, known) for run, known in standing.runs.items()},
            }
        return {
            "service": "broker",
            "address": self.settings.bind,
            "version": __version__,
            "federations": shown,
        }

    def _run(self, name: RunId, known: AgreedRun) -> Answer:
        hosted = self.table.get(name)
        fields = describe(known)
        return {**fields, **hosted.fields()} if isinstance(hosted, HostedRun) else fields


def _seated(party: PartyId, seat: Seat) -> OperatorCommand:
    member = SeatMember(
        party=party, role=seat.role, verify_key=seat.verify_key, curve_key=seat.curve_key
    )
    return OperatorCommand(command=member)


async def _forever(runner: Runner | None) -> None:
    assert runner is not None
    await runner.run()
