"""The broker's service: any number of federations and, for each, any number of runs.

It owns the tasks and the operator's commands. The switchboard decides which frames may pass, a
run's coordinator what the run does next, and the registrars which runs exist.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from broker.hosting import HostedFederation, HostedRun
from broker.lobby import Lobby
from broker.standing import AgreedRun, Seat, Standing, describe
from broker.switchboard import seats_of
from hdpvfl_mq import __version__
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.control import Answer, Control
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.page import PageFiles
from hdpvfl_mq.runtime.runner import FAREWELL_S, Runner, Stopped
from hdpvfl_mq.runtime.settings import dump_settings, load_settings
from hdpvfl_mq.runtime.tasks import Tasks
from hdpvfl_mq.runtime.window import Window
from schemas.base import in_words
from schemas.commands import (
    CannotOpen,
    CloseRun,
    EndRun,
    OperatorCommand,
    RemoveMember,
    SeatMember,
    StopRun,
)
from schemas.config import BrokerServiceSettings, BrokerSettings, Member, RunManifest
from schemas.ids import COORDINATOR, PartyId, RunId
from schemas.records import OperatorRequest

BROKER = "broker"  # the folder's name in `state`


class BrokerService(Lobby):
    """The broker of federations: it runs until it is stopped."""

    def __init__(self, settings: BrokerServiceSettings) -> None:
        super().__init__(settings.bind, load_keys(Path(settings.keys)))
        self.settings = settings
        self.log = Log(
            settings.log, settings.log_level, runs=Path(settings.runs), owner=COORDINATOR
        )
        self.tally = Tally()
        self.state = Path(settings.state) / BROKER
        self.federations: dict[RunId, HostedFederation] = {}
        for federation in settings.federations:
            hosted = HostedFederation(
                federation.name,
                self.keys,
                state=self.state,
                forward=self.forward,
                speaks=settings.speaks,
            )
            self.federations[federation.name] = hosted
            self.add(federation.name, hosted)
        self._runners: dict[RunId, Runner] = {}
        self._opened_by: dict[RunId, RunId] = {}  # the federation of each run in the table
        self._tasks = Tasks()

    @property
    def page(self) -> PageFiles:
        """What the status page needs to know about this machine."""
        return PageFiles(self.state, Path(self.settings.runs), COORDINATOR)

    # -- life ---------------------------------------------------------------------------------

    async def run(self) -> str:
        """Run until stopped; an error that no run can survive ends it."""
        self._seat_members()
        self.open()
        control = Control(self.state, self.handle)
        await control.open()
        window = Window(self.status, self.log)
        names = list(self.federations)
        self.log.say("service_started", address=self.settings.bind, federation=names)
        try:
            for task in self.gate.tasks:
                self._tasks.watch(task)
            self._tasks.start_waiting(self.read())
            self._tasks.start_waiting(window.run())
            if self.settings.watch is not None:
                self._tasks.start_waiting(window.serve(self.settings.watch, self.page))
            for federation in self.federations.values():
                self._reconcile(federation)
                self._tasks.start(_forever(federation.runner))
            await self._tasks.until_stopped()
            await self._tasks.end(self._pumps())
        finally:
            window.close()
            control.close()
            self.gate.close()
            for hosted in self.table.values():
                hosted.node.close()
        if self._tasks.failure is not None:
            raise self._tasks.failure
        self.log.say("service_stopped", federation=names)
        raise Stopped

    def stop(self) -> None:
        """Stop after the current turns."""
        self._tasks.stop()

    def _pumps(self) -> list[Runner]:
        registrars = [f.runner for f in self.federations.values() if f.runner is not None]
        return [*registrars, *self._runners.values()]

    # -- members ------------------------------------------------------------------------------

    def _seat_members(self) -> None:
        """Add members of the settings that their registrar does not know with these keys."""
        for federation in self.settings.federations:
            hosted = self.federations[federation.name]
            hosted.connect(partial(self._observe, hosted), self.tally)
            wanted = seats_of(federation.members)
            events = [
                _seated(p, seat)
                for p, seat in wanted.items()
                if not hosted.standing.has_heard_of(p, seat)
            ]
            hosted.node.turn((), events)  # before anybody can connect
            hosted.admit()
        self.admit()

    # -- runs ---------------------------------------------------------------------------------

    def _observe(self, federation: HostedFederation, node: Node) -> None:
        self._reconcile(federation)

    def _reconcile(self, federation: HostedFederation) -> None:
        """Admit members, open the runs they agreed on, close the runs that one of them stopped."""
        federation.admit()
        for name in federation.standing.runs:
            if (run := self._run_of(federation, name)) is not None:
                run.admit(federation.standing.members)
        self.admit()
        self.open_or_close_lobby()
        for name, agreed in federation.standing.runs.items():
            hosted = self._run_of(federation, name)
            if agreed.phase == "open" and hosted is None:
                self._open(federation, name, agreed)
            elif agreed.stopped_by and hosted is not None and hosted.node.outcome is None:
                self._runners[name].give(OperatorRequest(request="close"))

    def _run_of(self, federation: HostedFederation, name: RunId) -> HostedRun | None:
        """A run that this federation has opened; another one may have a run of the same name."""
        hosted = self.table.get(name)
        is_own = self._opened_by.get(name) == federation.name
        return hosted if is_own and isinstance(hosted, HostedRun) else None

    def _open(self, federation: HostedFederation, name: RunId, run: AgreedRun) -> None:
        if self._is_taken(federation, name, run):
            taken = "the broker has a run or federation of this name: give the run another name"
            self.log.say("run_refused", run=name, federation=federation.name, reason=taken)
            self.give(federation, CannotOpen(run=name, reason=taken))
            return
        seats = self._seats_of_run(federation.standing, name, run)
        hosted = HostedRun(
            run.manifest, seats, self.keys, runs=Path(self.settings.runs), forward=self.forward
        )
        hosted.admit(federation.standing.members)
        self._runners[name] = hosted.runner(
            patience_s=math.inf, farewell_s=math.inf, tally=self.tally
        )
        hosted.tell_closed(partial(self._closed, federation, name))
        self._opened_by[name] = federation.name
        self.add(name, hosted)
        is_new = hosted.node.steps == 0
        self.log.say(
            "run_opened" if is_new else "run_resumed", run=name, federation=federation.name
        )
        self._tasks.start(self._serve(federation, name, hosted))

    def _is_taken(self, federation: HostedFederation, name: RunId, run: AgreedRun) -> bool:
        """Whether the name of a run that opens belongs to another run, now or earlier.

        Names and folders of runs are shared by all federations of this broker.
        """
        others = (each for each in self.federations.values() if each is not federation)
        if name in self.table or any(_has_opened(each.standing, name) for each in others):
            return True
        folder = Path(self.settings.runs) / name / COORDINATOR
        if not (folder / "journal.db").exists():
            return False
        stored = folder / "manifest.toml"
        return not stored.exists() or load_settings(RunManifest, stored) != run.manifest

    def _seats_of_run(
        self, standing: Standing, name: RunId, run: AgreedRun
    ) -> Mapping[PartyId, Seat]:
        """The members' keys at the time the run opened, stored in its folder."""
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
        self.log.say("run_over", run=name, outcome=outcome, reason=reason)
        self.give(federation, EndRun(run=name, outcome=outcome, reason=in_words(reason)))
        self._tasks.start_waiting(self._forget(name, hosted))

    def _closed(self, federation: HostedFederation, name: RunId, outcome: str, why: str) -> None:
        self.give(federation, CloseRun(run=name, outcome=outcome, reason=in_words(why)))

    async def _forget(self, name: RunId, hosted: HostedRun) -> None:
        """Close a run's node after its parties have had time for their last acknowledgements."""
        await asyncio.sleep(FAREWELL_S)
        del self.table[name], self._runners[name], self._opened_by[name]
        hosted.node.close()
        self.admit()

    # -- the operator -------------------------------------------------------------------------

    async def handle(self, asked: dict[str, Any]) -> Answer:
        """Answer one command of the broker's operator."""
        if asked.get("command") in ("status", "runs"):
            return self.status()
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

    def status(self) -> Answer:
        """The service's status; the same for console, log, endpoints and commands."""
        shown = {}
        for name, federation in self.federations.items():
            standing = federation.standing
            shown[name] = {
                "members": {p: seat.role for p, seat in sorted(standing.members.items())},
                "connected": self.connected(federation),
                "runs": {
                    run: self._run(federation, run, known) for run, known in standing.runs.items()
                },
            }
        return {
            "service": "broker",
            "address": self.settings.bind,
            "version": __version__,
            "federations": shown,
            "traffic": {
                "sent_bytes": self.gate.bytes_sent,
                "received_bytes": self.gate.bytes_received,
                "resends": self.tally.resends,
                "refusals": self.tally.refusals,
            },
            "queues": {
                name: {
                    "queue_messages": hosted.link.waiting,
                    "unacknowledged": hosted.node.mailbox.unacknowledged_count,
                }
                for name, hosted in self.table.items()
            },
        }

    def _run(self, federation: HostedFederation, name: RunId, known: AgreedRun) -> Answer:
        hosted, fields = self._run_of(federation, name), describe(known)
        return fields if hosted is None else {**fields, **hosted.fields()}


def _has_opened(standing: Standing, name: RunId) -> bool:
    return name in standing.runs and standing.runs[name].phase in ("open", "over")


def _seated(party: PartyId, seat: Seat) -> OperatorCommand:
    member = SeatMember(
        party=party, role=seat.role, verify_key=seat.verify_key, curve_key=seat.curve_key
    )
    return OperatorCommand(command=member)


async def _forever(runner: Runner | None) -> None:
    assert runner is not None
    await runner.run()
