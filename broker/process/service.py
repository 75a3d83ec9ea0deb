"""The broker's service: any number of federations and, for each, any number of runs.

It owns the service's life and the operator's commands. The switchboard decides which frames may
pass, a run's coordinator (open_runs.py) what a run does next, the registrars which runs exist.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from broker.process.hosting import HostedFederation
from broker.process.open_runs import OpenRuns
from broker.process.switchboard import seats_of
from broker.run_phases import Opened, Proposed, is_stopped
from broker.standing import Seat
from hdpvfl_mq import __version__
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.control import Answer, Control
from hdpvfl_mq.runtime.page import PageFiles
from hdpvfl_mq.runtime.runner import Runner, Stopped
from hdpvfl_mq.runtime.window import Window
from schemas.commands import (
    OperatorCommand,
    RemoveMember,
    SeatMember,
    StopRun,
)
from schemas.config import BrokerServiceSettings
from schemas.ids import COORDINATOR, PartyId, RunId
from schemas.records import OperatorRequest

BROKER = "broker"  # the folder's name in `state`


class BrokerService(OpenRuns):
    """The broker of federations: it runs until it is stopped."""

    def __init__(self, settings: BrokerServiceSettings) -> None:
        super().__init__(settings)
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
                self.tasks.watch(task)
            self.tasks.start_waiting(self.read())
            self.tasks.start_waiting(window.run())
            if self.settings.watch is not None:
                self.tasks.start_waiting(window.serve(self.settings.watch, self.page))
            for federation in self.federations.values():
                self._reconcile(federation)
                self.tasks.start(_forever(federation.runner))
            await self.tasks.until_stopped()
            await self.tasks.end(self._pumps())
        finally:
            window.close()
            control.close()
            self.gate.close()
            for hosted in self.table.values():
                hosted.node.close()
        if self.tasks.failure is not None:
            raise self.tasks.failure
        self.log.say("service_stopped", federation=names)
        raise Stopped

    def stop(self) -> None:
        """Stop after the current turns."""
        self.tasks.stop()

    def _pumps(self) -> list[Runner]:
        registrars = [f.runner for f in self.federations.values() if f.runner is not None]
        return [*registrars, *self.runners.values()]

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
            if (run := self.run_of(federation, name)) is not None:
                run.admit(federation.standing.members)
        self.admit()
        self.open_or_close_lobby()
        self.give_up_on(federation)
        for name, agreed in federation.standing.runs.items():
            hosted = self.run_of(federation, name)
            if isinstance(agreed, Proposed):
                self.refuse_name(federation, name, agreed)
            elif isinstance(agreed, Opened) and hosted is None:
                self.open_run(federation, name, agreed)
            elif is_stopped(agreed) and hosted is not None and hosted.node.outcome is None:
                self.runners[name].give(OperatorRequest(request="close"))

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
                raise OperatorError(f"{asked.get('party')} is not a member; see 'hdpvfl status'")
            self.give(hosted, RemoveMember(party=str(asked["party"])))
            return {"party": asked["party"]}
        raise OperatorError(f"a broker's service has no command {asked.get('command')!r}")

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
                    run: self.describe_run(federation, run, known)
                    for run, known in standing.runs.items()
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


def _seated(party: PartyId, seat: Seat) -> OperatorCommand:
    member = SeatMember(
        party=party, role=seat.role, verify_key=seat.verify_key, curve_key=seat.curve_key
    )
    return OperatorCommand(command=member)


async def _forever(runner: Runner | None) -> None:
    assert runner is not None
    await runner.run()
