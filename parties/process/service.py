"""A party's service: one connection, one ledger, and a node for every run its federation opens.

It owns the tasks and the operator's commands; what a run or a membership does next is decided by
the roles. The policy answers proposals here, because it may change between two starts and a role's
journal may not depend on it.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from nacl.signing import VerifyKey

from hdpvfl_mq import __version__
from hdpvfl_mq.errors import HdpvflError, OperatorError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.runtime import logs
from hdpvfl_mq.runtime.control import Control
from hdpvfl_mq.runtime.diagnosis import sentence
from hdpvfl_mq.runtime.hub import Hub
from hdpvfl_mq.runtime.keys import load_keys, read_secret, write_secret
from hdpvfl_mq.runtime.runner import Runner, Stopped
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.status import Status
from hdpvfl_mq.runtime.transport import DealerLink
from hdpvfl_mq.wire.codec import model_digest
from parties.admission import policy_rule
from parties.membership import Belonging, Fellow, KnownRun, Membership
from parties.pairing import Self
from parties.process.build import load_assets
from parties.process.commands import Commands
from parties.process.hosted import HostedRun
from parties.process.ledger_book import LedgerBook, open_ledger
from parties.process.run_settings import settings_of_run
from schemas.base import in_words
from schemas.config import PartyPolicy, PartyServiceSettings
from schemas.federation import AnswerRun, Command, EndRun, OperatorCommand, SeatMember, StopRun
from schemas.ids import COORDINATOR, RunId
from schemas.records import OperatorRequest

PAIRING_SECRET_BYTES = 32
WATCH_S = 0.5
UNCONNECTED_S, UNANSWERED_S = 2.0, 8.0  # after which the reason is looked for


class PartyService:
    """One party, for as long as it belongs to its federation."""

    def __init__(self, settings: PartyServiceSettings) -> None:
        self.settings = settings
        self.state = Path(settings.state) / settings.party
        self.keys = load_keys(Path(settings.keys))
        self.policy()  # a mistake in it shows before anything is opened
        self.ledger = open_ledger(self.state / "ledger.db", settings.party)
        self.hosted: dict[RunId, HostedRun] = {}
        self._serving: set[RunId] = set()
        self._judged: set[RunId] = set()
        self._told: set[str] = set()
        self.trouble = ""  # what keeps this party from its broker, in one sentence
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        self.node = self._membership()

    def _membership(self) -> Node:
        settings = self.settings
        folder = self.state / "federations"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = settings.federation
        secret = folder / f"{name}.secret"
        if not secret.exists():
            write_secret(secret, os.urandom(PAIRING_SECRET_BYTES))
        me = Self(
            name,
            settings.party,
            bytes(self.keys.signing.verify_key),
            self.keys.curve_public,
            read_secret(secret, PAIRING_SECRET_BYTES),
        )
        node = Node(
            Membership(me),
            Identity(settings.party, settings.role, name, self.keys.signing),
            {COORDINATOR: Contact("coordinator", VerifyKey(_bytes(settings.broker_verify_key)))},
            journal=Journal(folder / f"{name}.db", run=name, party=settings.party),
        )
        node.open()
        return node

    def policy(self) -> PartyPolicy:
        """The policy as it is written now: a proposal is judged by the newest."""
        return load_settings(PartyPolicy, Path(self.settings.policy))

    @property
    def belonging(self) -> Belonging:
        """What this party knows of its federation."""
        state = self.node.state
        assert isinstance(state, Belonging)
        return state

    # -- life ---------------------------------------------------------------------------------

    async def run(self) -> str:
        """Until it is stopped; an error that no run may survive ends it."""
        settings = self.settings
        logs.begin(settings.log)
        broker_key = _bytes(settings.broker_curve_key)
        self.link = DealerLink(settings.broker, self.keys, broker_key)
        self.hub = Hub(self.link)
        self.runner = Runner(
            self.node,
            self.hub.open(settings.federation),
            patience_s=math.inf,
            observe=self._reconcile,
            farewell_s=math.inf,
        )
        for member in self._new_members():
            self.give(member)
        control = Control(self.state, Commands(self).handle)
        await control.open()
        logs.say(
            "service_started",
            party=settings.party,
            federation=settings.federation,
            address=settings.broker,
            version=__version__,
        )
        try:
            self._start(self.hub.pump())
            self._start(self._lead())
            self._start(self._watch_connection())
            await self._stopped.wait()
            await self._end_tasks()
        finally:
            control.close()
            self.link.close()
            self.node.close()
            self.ledger.close_file()
        if self._failed is not None:
            raise self._failed
        logs.say("service_stopped", party=settings.party)
        raise Stopped

    def stop(self) -> None:
        """End after the current turns."""
        self._stopped.set()

    def give(self, command: Command) -> None:
        """Have the membership take a command."""
        self.runner.give(OperatorCommand(command=command))

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
        self.runner.stop()
        for hosted in self.hosted.values():
            if hosted.runner is not None:
                hosted.runner.stop()
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=1.0)
            for task in pending:
                task.cancel()

    async def _lead(self) -> None:
        await self.runner.run()

    async def _watch_connection(self) -> None:
        """Say why there is no connection, within seconds and whenever the reason changes."""
        settings, waited_s = self.settings, 0.0
        while True:
            await asyncio.sleep(WATCH_S)
            connected = self.link.is_connected
            answered = connected and not self.node.mailbox.has_unacknowledged
            waited_s = 0.0 if answered else waited_s + WATCH_S
            said = self.trouble
            if answered:
                self.trouble = ""
            elif waited_s >= (UNANSWERED_S if connected else UNCONNECTED_S):
                trouble = "connected" if connected else self.link.trouble
                self.trouble = await asyncio.to_thread(
                    sentence, settings.broker, trouble, settings.federation
                )
            if self.trouble and self.trouble != said:
                logs.say("not_connected", address=settings.broker, reason=self.trouble)
            elif said and not self.trouble:
                logs.say("connected", address=settings.broker)

    def _new_members(self) -> list[SeatMember]:
        """Peers of the settings that the membership has not pinned like this."""
        found = []
        for peer in self.settings.peers:
            key = _bytes(peer.verify_key)
            known = self.belonging.fellows.get(peer.party)
            if peer.role != "coordinator" and (known is None or known.verify_key != key):
                found.append(
                    SeatMember(
                        party=peer.party, role=peer.role, verify_key=key, curve_key=bytes(32)
                    )
                )
        return found

    # -- runs ---------------------------------------------------------------------------------

    def _reconcile(self, node: Node) -> None:
        """Answer what is asked and open what is agreed on."""
        for party, pairing in self.belonging.pairings.items():
            if pairing.words and party not in self._told:
                self._told.add(party)
                logs.say("member_waits", peer=party, reason=f"compare words: {pairing.words}")
        for name, run in self.belonging.runs.items():
            if run.phase == "asked" and name not in self._judged:
                self._judged.add(name)
                self._judge(name, run)
            if run.phase == "open" and name not in self._serving:
                self._serving.add(name)
                self._start(self._serve(name, run))

    def _judge(self, name: RunId, run: KnownRun) -> None:
        """What the policy says: no, yes, or that the operator must be asked."""
        must_ask = False
        try:
            policy = self.policy()
            standing = LedgerBook(self.ledger, policy, name, b"").standing()
            rule = policy_rule(policy, self.settings.party, run.manifest, standing)
            must_ask = policy.proposals == "ask"
        except OperatorError as wrong:  # a policy that cannot be read, another cap than before
            rule = f"the policy of {self.settings.party} cannot be used"
            logs.say("run_failed", run=name, reason=str(wrong), exit=wrong.exit_code)
        if rule is None and must_ask:
            logs.say("run_asked", run=name, peer=run.manifest.active_party)
            return
        reason = rule or "policy.proposals accepts what breaks no rule"
        logs.say("run_answered", run=name, reason=reason)
        self.give(AnswerRun(run=name, accepted=rule is None, reason=in_words(reason)))

    async def _serve(self, name: RunId, run: KnownRun) -> None:
        try:
            hosted = await self._build(name, run)
        except HdpvflError as stop:
            self._fail(name, stop)
            return
        self.hosted[name] = hosted
        is_new = hosted.node.steps == 0
        logs.say("run_opened" if is_new else "run_resumed", run=name)
        hosted.connect(self.hub.open(name))
        try:
            outcome = await hosted.run()
        finally:
            self.hub.close(name)
            self.hosted.pop(name).node.close()
        spent = hosted.fields()["epsilon_spent"]
        logs.say("run_over", run=name, outcome=outcome, reason=hosted.reason, epsilon=spent)
        self.give(EndRun(run=name, outcome=outcome, reason=in_words(hosted.reason)))

    async def _build(self, name: RunId, run: KnownRun) -> HostedRun:
        settings = settings_of_run(self.settings, run, self.belonging.fellows)
        own = await asyncio.to_thread(load_assets, settings, self.keys)
        own = replace(own, approved=model_digest(run.manifest))
        return HostedRun(settings, own, self.keys, self.ledger)

    def _fail(self, name: RunId, stop: HdpvflError) -> None:
        """This party cannot take part after all: say so, and why to its own operator only."""
        folder = Path(self.settings.runs) / name / self.settings.party
        fields = {"phase": "stopped", "reason": str(stop), "exit": stop.exit_code}
        Status(folder / "status.json").write(fields)
        logs.say("run_failed", run=name, reason=str(stop), exit=stop.exit_code)
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

    def fellow(self, name: str) -> Fellow | None:
        """Another member, if this party knows it."""
        return self.belonging.fellows.get(name)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text)
