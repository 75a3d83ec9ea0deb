"""The runs that a broker has open: their names, folders, coordinators and ends.

It owns the nodes of runs. service.py decides when a run is opened or stopped; the registrars know
which runs exist.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from broker.process.hosting import HostedFederation, HostedRun
from broker.process.lobby import Lobby
from broker.process.switchboard import seats_of
from broker.run_phases import AgreedRun, Opened, Over
from broker.standing import Seat, Standing, describe
from hdpvfl_mq.runtime.control import Answer
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.runner import FAREWELL_S, Runner
from hdpvfl_mq.runtime.settings import dump_settings, load_settings
from hdpvfl_mq.runtime.tasks import Tasks
from schemas.base import in_words
from schemas.commands import CannotOpen, CloseRun, EndRun
from schemas.config import BrokerServiceSettings, BrokerSettings, Member, RunManifest
from schemas.ids import COORDINATOR, PartyId, RunId

UNHEARD_ENDS_MAX = 32  # runs that are over and wait for one party to acknowledge that
UNHEARD_ENDS_ALL = 256  # and those of a federation that wait for anybody


class OpenRuns(Lobby):
    """The runs of all federations of one broker."""

    def __init__(self, settings: BrokerServiceSettings) -> None:
        super().__init__(settings.bind, load_keys(Path(settings.keys)))
        self.settings = settings
        self.log = Log(
            settings.log, settings.log_level, runs=Path(settings.runs), owner=COORDINATOR
        )
        self.tally = Tally()
        self.runners: dict[RunId, Runner] = {}
        self.tasks = Tasks()
        self._opened_by: dict[RunId, RunId] = {}  # the federation of each run in the table

    def run_of(self, federation: HostedFederation, name: RunId) -> HostedRun | None:
        """A run that this federation has opened; another one may have a run of the same name."""
        hosted = self.table.get(name)
        is_own = self._opened_by.get(name) == federation.name
        return hosted if is_own and isinstance(hosted, HostedRun) else None

    def open_run(self, federation: HostedFederation, name: RunId, run: AgreedRun) -> None:
        """Start the coordinator of a run that all its parties have agreed on."""
        if self.refuse_name(federation, name, run):
            return
        seats = self._seats_of_run(federation.standing, name, run)
        hosted = HostedRun(
            run.manifest, seats, self.keys, runs=Path(self.settings.runs), forward=self.forward
        )
        hosted.admit(federation.standing.members)
        self.runners[name] = hosted.runner(
            patience_s=math.inf, farewell_s=math.inf, tally=self.tally
        )
        hosted.tell_closed(partial(self._closed, federation, name))
        self._opened_by[name] = federation.name
        self.add(name, hosted)
        is_new = hosted.node.steps == 0
        self.log.say(
            "run_opened" if is_new else "run_resumed", run=name, federation=federation.name
        )
        self.tasks.start(self._serve(federation, name, hosted))

    def refuse_name(self, federation: HostedFederation, name: RunId, run: AgreedRun) -> bool:
        """Refuse a run whose name is taken; whether it was.

        A proposal is refused before its parties join: a party with the same keys in both
        federations would speak to the other run, which could not tell the two apart.
        """
        if not self._is_taken(federation, name, run):
            return False
        taken = "the broker has a run or federation of this name: give the run another name"
        self.log.say("run_refused", run=name, federation=federation.name, reason=taken)
        self.give(federation, CannotOpen(run=name, reason=taken))
        return True

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
        outcome = await self.runners[name].run()
        hosted.link.drop_all()  # the reader of all runs would wait for room in a queue nobody reads
        hosted.finish()
        reason = str(hosted.node.state.reason)
        self.log.say("run_over", run=name, outcome=outcome, reason=reason)
        unheard = hosted.node.mailbox.waiting_peers
        self.give(
            federation,
            EndRun(run=name, outcome=outcome, reason=in_words(reason), unheard=unheard),
        )
        self.tasks.start_waiting(self._forget(name, hosted))

    def _closed(self, federation: HostedFederation, name: RunId, outcome: str, why: str) -> None:
        self.give(federation, CloseRun(run=name, outcome=outcome, reason=in_words(why)))

    async def _forget(self, name: RunId, hosted: HostedRun) -> None:
        """Close a run's node after its parties have had time for their last acknowledgements."""
        await asyncio.sleep(FAREWELL_S)
        del self.table[name], self.runners[name], self._opened_by[name]
        hosted.node.close()
        self.admit()

    def give_up_on(self, federation: HostedFederation) -> None:
        """Wait no longer for parties that leave very many ends without an acknowledgement.

        Each such run keeps files open. The registrar tells these parties when they come back.
        """
        ends, count = Counter[PartyId](), 0
        for name in reversed(self.table):
            hosted = self.run_of(federation, name)
            if hosted is None or hosted.node.outcome is None:
                continue
            awaited = hosted.node.mailbox.awaited_peers
            ends.update(awaited)
            count += bool(awaited)
            is_full = count > UNHEARD_ENDS_ALL  # members may take turns in keeping runs open
            for party in (p for p in awaited if is_full or ends[p] > UNHEARD_ENDS_MAX):
                hosted.node.mailbox.give_up(party)
                hosted.link.wake.set()

    def describe_run(self, federation: HostedFederation, name: RunId, known: AgreedRun) -> Answer:
        """The fields of one run, for the status."""
        hosted, fields = self.run_of(federation, name), describe(known)
        if hosted is None:
            return fields
        live = hosted.fields()
        return {**fields, **live, "phase": "over" if live["outcome"] else live["phase"]}


def _has_opened(standing: Standing, name: RunId) -> bool:
    return isinstance(standing.runs.get(name), Opened | Over)
