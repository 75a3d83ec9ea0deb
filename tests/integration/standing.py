"""Services of a whole federation in one event loop: real sockets, files, ledgers and commands."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from broker.process.service import BrokerService
from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.runner import Stopped
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from parties.process.commands import Commands
from parties.process.service import PartyService
from schemas.config import BrokerServiceSettings, PartyServiceSettings, RunManifest
from schemas.ids import COORDINATOR
from schemas.policy import PartyPolicy
from tests.integration.processes import QUICK_DATA

WAIT_S = 60.0


class Services:
    """Starts, stops and asks the services of a demo's federation."""

    def __init__(self, folder: Path, demo: Demo) -> None:
        self.folder, self.demo = folder, demo
        self.live: dict[str, PartyService | BrokerService] = {}
        self.tasks: dict[str, asyncio.Task] = {}

    async def start(self, *names: str) -> None:
        for name in names or (COORDINATOR, *self.demo.parties):
            path = self.demo.service(name)
            if name == COORDINATOR:
                service = BrokerService(load_settings(BrokerServiceSettings, path))
            else:
                service = PartyService(load_settings(PartyServiceSettings, path))
            self.live[name] = service
            self.tasks[name] = asyncio.create_task(self._run(service))
        await asyncio.sleep(0)

    async def _run(self, service: PartyService | BrokerService) -> None:
        if isinstance(service, BrokerService):
            await service.run()
        else:
            commands = Commands(service)
            await service.run(commands.handle, commands.status)

    async def stop(self, *names: str) -> None:
        for name in names or tuple(self.live):
            self.live.pop(name).stop()
            with suppress(Stopped):
                await asyncio.wait_for(self.tasks.pop(name), WAIT_S)

    def manifest(self, run: str, **changes) -> dict:
        fields = {**self.demo.manifest.model_dump(), "run": run, **changes}
        return json.loads(RunManifest.model_validate(fields).model_dump_json())

    async def ask(self, name: str, command: str, **fields) -> dict:
        """What the service answers on its control socket."""
        state = self.folder / "state" / ("broker" if name == COORDINATOR else name)
        question = {"command": command, **fields}
        return await asyncio.to_thread(control.ask, state, question, what="test")

    async def propose(self, run: str, **changes) -> None:
        await self.ask("active", "propose", manifest=self.manifest(run, **changes))

    def run(self, name: str, run: str) -> dict:
        service = self.live[name]
        assert isinstance(service, PartyService)
        return Commands(service)._runs({})["runs"].get(run, {"phase": "unknown"})

    async def phase(self, run: str, *phases: str, parties: tuple[str, ...] = ()) -> dict:
        """Everybody's view of the run, once it is in one of these phases for all of them."""
        names = parties or self.demo.parties

        def seen() -> dict | None:
            for task in self.tasks.values():
                assert not task.done(), task.exception()
            found = {name: self.run(name, run) for name in names}
            return found if {each["phase"] for each in found.values()} <= set(phases) else None

        return await until(seen, f"{run} {phases}")

    def stored_model(self, party: str, run: str) -> dict:
        return json.loads((self.demo.folder.parent / run / party / "model.json").read_text())

    def model(self, party: str, run: str) -> list[float]:
        return self.stored_model(party, run)["weights"]

    def change_policy(self, **changes) -> None:
        path = self.demo.settings("policy")
        policy = load_settings(PartyPolicy, path)
        path.write_text(dump_settings(PartyPolicy(**{**fields_of(policy), **changes})))


async def until(found, what: str = ""):
    for _ in range(int(WAIT_S / 0.02)):
        if (value := found()) not in (None, False):
            return value
        await asyncio.sleep(0.02)
    raise AssertionError(f"did not come: {what}")


@asynccontextmanager
async def standing(folder: Path, *, start: bool = True, **options):
    """A federation whose services stand in this loop."""
    demo = prepare_demo(
        UpOptions(out=folder, run="first", **{**QUICK_DATA, "passives": 1, **options})
    )
    write_demo(demo, state=folder / "state", port=free_port())
    services = Services(folder, demo)
    if start:
        await services.start()
    try:
        yield services
    finally:
        await services.stop()
