"""A party's service: one connection, one ledger, and a node for every run its federation opens.

It owns the tasks and the nodes of runs; the roles decide what a run or a membership does next, and
judge.py lets the policy answer proposals.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hdpvfl_mq import __version__
from hdpvfl_mq.errors import HdpvflError, OperatorError, RefusedError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.control import Answer, Control, Handler
from hdpvfl_mq.runtime.hub import Hub
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.page import PageFiles
from hdpvfl_mq.runtime.runner import Runner, Stopped
from hdpvfl_mq.runtime.settings import fields_of
from hdpvfl_mq.runtime.status import Status
from hdpvfl_mq.runtime.tasks import Tasks
from hdpvfl_mq.runtime.window import Window
from hdpvfl_mq.wire.codec import model_digest
from parties.belonging import Belonging
from parties.leaving import GRACE_S
from parties.membership import Membership
from parties.process.broker_link import BrokerLink
from parties.process.build import load_assets, retire_secret
from parties.process.hosted import PartyRun
from parties.process.judge import Judge, name_taken, newest_policy
from parties.process.ledger_file import open_ledger
from parties.process.member_node import MemberNode
from parties.process.run_settings import settings_of_run
from parties.roster import Fellow
from parties.run_phases import Asked, Open, Refused
from schemas.base import in_words
from schemas.commands import (
    Command,
    EndRun,
    OperatorCommand,
    ReplaceKeys,
    StopRun,
)
from schemas.config import PartyServiceSettings
from schemas.ids import RunId
from schemas.records import OperatorRequest


class PartyService:
    """One party's service, as long as it belongs to its federation."""

    def __init__(self, settings: PartyServiceSettings) -> None:
        self.settings = settings
        self.state = Path(settings.state) / settings.party
        self.log = Log(
            settings.log, settings.log_level, runs=Path(settings.runs), owner=settings.party
        )
        self.tally = Tally()
        policy = newest_policy(settings)  # report a mistake in the policy before anything is opened
        self.ledger = open_ledger(self.state / "ledger.db", settings.party)
        self.hosted: dict[RunId, PartyRun] = {}
        self._serving: set[RunId] = set()
        self._judged: set[RunId] = set()
        self._withdrawn: set[RunId] = set()
        self._told: set[str] = set()
        self._tasks = Tasks()
        self.member = MemberNode(settings, self.state)
        self.node = self.member.node
        self.judge = Judge(self.member, self.ledger, self.log, policy)

    @property
    def belonging(self) -> Belonging:
        """This party's state in its federation."""
        return self.member.state

    # -- life ---------------------------------------------------------------------------------

    async def run(self, handle: Handler, status: Callable[[], Answer]) -> str:
        """Run until stopped; an error that no run can survive ends it.

        `handle` answers the operator's commands, `status` says what the service does.
        """
        settings = self.settings
        self._connect()
        for member in self.member.new_members():
            self.give(member)
        self._give_new_keys()
        control = Control(self.state, handle)
        await control.open()
        window = Window(status, self.log)
        self.log.say(
            "service_started",
            party=settings.party,
            federation=settings.federation,
            address=settings.broker,
            version=__version__,
        )
        try:
            self._tasks.start_waiting(self.hub.pump())
            self._tasks.start_waiting(self.link.listen())
            self._tasks.start(self._lead())
            self._tasks.start_waiting(self.broker.watch())
            self._tasks.start_waiting(window.run())
            if settings.watch is not None:
                self._tasks.start_waiting(window.serve(settings.watch, self.page))
            await self._tasks.until_stopped()
            await self._tasks.end(self._pumps())
        finally:
            window.close()
            control.close()
            self.link.close()
            self.node.close()
            self.ledger.close_file()
        if self._tasks.failure is not None:
            raise self._tasks.failure
        self.log.say("service_stopped", party=settings.party)
        raise Stopped

    def _connect(self) -> None:
        """Open the link to the broker and the membership's place on it."""
        self.broker = BrokerLink(self.settings, self.member, self.log)
        self.link = self.broker.link
        self.hub = Hub(self.link)
        self.hub_link = self.hub.open(self.settings.federation)
        self.runner = Runner(
            self.node,
            self.hub_link,
            patience_s=math.inf,
            observe=self._reconcile,
            farewell_s=math.inf,
            tally=self.tally,
        )

    @property
    def page(self) -> PageFiles:
        """What the status page needs to know about this machine."""
        return PageFiles(self.state, Path(self.settings.runs), self.settings.party)

    def stop(self) -> None:
        """Stop after the current turns."""
        self._tasks.stop()

    def give(self, command: Command) -> None:
        """Pass a command to the membership."""
        self.runner.give(OperatorCommand(command=command))

    def _pumps(self) -> list[Runner]:
        hosted = [run.runner for run in self.hosted.values() if run.runner is not None]
        return [self.runner, *hosted]

    async def _lead(self) -> None:
        await self.runner.run()

    # -- runs ---------------------------------------------------------------------------------

    def _reconcile(self, node: Node) -> None:
        """Answer proposals and open the runs that are agreed on."""
        for party, pairing in self.belonging.pairings.items():
            if pairing.words and party not in self._told:
                self._told.add(party)
                self.log.say("member_waits", peer=party, reason=f"compare words: {pairing.words}")
        for dispute in self.membership.disputes(self.belonging):
            if str(dispute) not in self._told:
                self._told.add(str(dispute))
                self.log.say("keys_differ", peer=dispute.party, reason=str(dispute))
        for party, former in self.belonging.former.items():
            if (told := f"{party} {len(former)}") not in self._told:
                self._told.add(told)
                self.log.say("keys_changed", peer=party, reason="signed by the previous key")
        for name, run in self.belonging.runs.items():
            if isinstance(run, Asked) and name not in self._judged:
                self._judged.add(name)
                if (answer := self.judge.answer(name, run)) is not None:
                    self.give(answer)
            if isinstance(run, Open) and name not in self._serving:
                self._serving.add(name)
                self._tasks.start(self._serve(name, run))
            if isinstance(run, Refused) and name in self.hosted and name not in self._withdrawn:
                self._withdrawn.add(name)  # the broker could not open it
                self.withdraw(name)

    async def _serve(self, name: RunId, run: Open) -> None:
        try:
            hosted = await self._build(name, run)
        except HdpvflError as stop:
            self._fail(name, stop)
            return
        self.hosted[name] = hosted
        is_new = hosted.node.steps == 0
        self.log.say("run_opened" if is_new else "run_resumed", run=name)
        hosted.connect(self.hub.open(name), tally=self.tally)
        # The role's own deadline begins with the offer, which a lying coordinator may withhold.
        wait_s = run.manifest.deadline_s + 2 * GRACE_S
        overdue = asyncio.get_running_loop().call_later(wait_s, self._overdue, name)
        try:
            outcome = await hosted.run()
        finally:
            overdue.cancel()
            self.hub.close(name)
            self.hosted.pop(name).node.close()
        spent, known = hosted.fields()["epsilon_spent"], self.belonging.runs[name]
        reason = known.reason if isinstance(known, Refused) else hosted.reason
        self.log.say("run_over", run=name, outcome=outcome, reason=reason, epsilon=spent)
        self.give(EndRun(run=name, outcome=outcome, reason=in_words(reason)))

    def _overdue(self, name: RunId) -> None:
        if (hosted := self.hosted.get(name)) is not None and hosted.node.outcome is None:
            self.withdraw(name)

    async def _build(self, name: RunId, run: Open) -> PartyRun:
        if (taken := name_taken(self.settings, name)) is not None:
            raise RefusedError(taken)
        settings = settings_of_run(self.settings, run, self.belonging.fellows)
        retire_secret(settings)
        keys = load_keys(Path(settings.keys))  # those the run began with
        own = await asyncio.to_thread(load_assets, settings, keys)
        own = replace(own, approved=model_digest(run.manifest))
        return PartyRun(settings, own, keys, self.ledger)

    def _fail(self, name: RunId, stop: HdpvflError) -> None:
        """This party cannot take part after all: tell the others, and only its operator why."""
        folder = Path(self.settings.runs) / name / self.settings.party
        fields = {"phase": "stopped", "reason": str(stop), "exit": stop.exit_code}
        Status(folder / "status.json").write(fields)
        self.log.say("run_failed", run=name, reason=str(stop), exit=stop.exit_code)
        self.give(StopRun(run=name, reason="settings"))
        self.give(EndRun(run=name, outcome="stopped", reason=in_words(str(stop))))

    def withdraw(self, name: RunId) -> None:
        """Leave a run; what is spent stays spent."""
        hosted = self.hosted.get(name)
        if hosted is not None and hosted.runner is not None:
            hosted.runner.give(OperatorRequest(request="withdraw"))
        elif name in self.belonging.runs:
            self.give(StopRun(run=name, reason="operator"))
        else:
            raise OperatorError(f"there is no run {name}; see 'hdpvfl runs'")

    @property
    def membership(self) -> Membership:
        """This party's role in its federation."""
        return self.member.role

    def replace_keys(self, folder: str) -> None:
        """From the next turn on, use the keys of a folder instead of the current ones."""
        self.member.take_ring(Path(folder))
        if not self.member.changes():
            raise OperatorError(f"{folder}: these keys do not replace the keys in use")
        fields = {**fields_of(self.settings), "keys": folder}
        self.settings = PartyServiceSettings.model_validate(fields)
        self._give_new_keys()

    def _give_new_keys(self) -> None:
        for change in self.member.changes():
            self.give(ReplaceKeys(change=change))

    def fellow(self, name: str) -> Fellow | None:
        """Another member; None if this party has not pinned it."""
        return self.belonging.fellows.get(name)
