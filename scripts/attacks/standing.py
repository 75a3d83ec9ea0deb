"""A federation of running services, as real processes, to attack.

It owns the processes, the operators' commands and the journals of members; it knows no attack.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from broker.__main__ import main as broker_main
from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from parties.__main__ import main as party_main
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from schemas.policy import PartyPolicy
from scripts.attacks.liar import main as lying
from scripts.attacks.stage import refused_in
from tests.integration.forked import Served
from tests.integration.processes import QUICK_DATA, environment

WAIT_S = 120.0


@dataclass
class Standing:
    """Services of a demo's federation, each a process."""

    folder: Path
    demo: Demo
    children: dict[str, Served] = field(default_factory=dict)

    def start(self, *names: str, lie: str = "") -> None:
        """Start services, honest or with a lie."""
        for name in names or (COORDINATOR, *self.demo.parties):
            honest = broker_main if name == COORDINATOR else party_main
            program = partial(lying, lie) if lie else honest
            self.children[name] = Served(
                partial(program, self.demo.service(name)),
                out=self.log(name),
                cwd=self.folder,
                environment=environment(),
            )
        for name in names or (COORDINATOR, *self.demo.parties):
            self.until(partial(self.asked, name, "status"), f"{name} to stand")

    def stop(self, *names: str) -> None:
        """End services as an operator does."""
        for name in names or tuple(self.children):
            child = self.children.pop(name)
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(20.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def log(self, name: str) -> Path:
        """What a service writes."""
        return self.folder / f"{name}.log"

    def is_alive(self, name: str) -> bool:
        """Whether a service runs."""
        return self.children[name].poll() is None

    def ask(self, name: str, command: str, **fields: Any) -> dict[str, Any]:
        """A command of the service's own operator."""
        state = self.folder / "state" / ("broker" if name == COORDINATOR else name)
        return dict(control.ask(state, {"command": command, **fields}, what="attack"))

    def asked(self, name: str, command: str, **fields: Any) -> dict[str, Any]:
        """As `ask`, or nothing if the service does not answer."""
        try:
            return self.ask(name, command, **fields)
        except (HdpvflError, OSError, ValueError):
            return {}

    def manifest(self, run: str, **changes: Any) -> dict[str, Any]:
        """The demo's manifest under another name."""
        fields = {**self.demo.manifest.model_dump(), "run": run, **changes}
        return dict(json.loads(RunManifest.model_validate(fields).model_dump_json()))

    def run(self, name: str, run: str) -> dict[str, Any]:
        """A run as a party's service sees it."""
        runs = self.asked(name, "status").get("runs", {})
        return dict(runs.get(run, {"phase": "unknown"}))

    def over(self, run: str, *phases: str) -> dict[str, dict[str, Any]]:
        """Every party's view of a run, once it is over or refused for all."""
        ends = phases or ("over", "refused")

        def seen() -> dict[str, dict[str, Any]]:
            found = {name: self.run(name, run) for name in self.demo.parties}
            return found if all(each["phase"] in ends for each in found.values()) else {}

        shown: dict[str, dict[str, Any]] = self.until(seen, f"{run} to be {ends}")
        return shown

    def trains(self, run: str) -> bool:
        """Whether the federation can still train: a new run completes for all."""
        self.ask("active", "propose", manifest=self.manifest(run))
        return {each.get("outcome") for each in self.over(run).values()} == {"completed"}

    def refusals(self, party: str, run: str = "") -> list[str]:
        """What a member has refused in its federation, or in a run."""
        if run:
            return refused_in(self.demo.folder.parent / run / party / "journal.db", party)
        found = (self.folder / "state" / party).rglob(f"{self.demo.federation}.db")
        return [reason for path in found for reason in refused_in(path, party)]

    def change_policy(self, **changes: Any) -> None:
        """Rewrite the policy of all parties."""
        path = self.demo.settings("policy")
        policy = load_settings(PartyPolicy, path)
        path.write_text(dump_settings(PartyPolicy(**{**fields_of(policy), **changes})))

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """Poll for something that must come."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if value := found():
                return value
            time.sleep(0.1)
        raise TimeoutError(f"waited {WAIT_S:g} s for {what}")


@contextmanager
def standing(folder: Path, **options: Any) -> Iterator[Standing]:
    """A federation on disk; services that still run at the end are stopped."""
    chosen: dict[str, Any] = {**QUICK_DATA, "passives": 1, **options}
    demo = prepare_demo(UpOptions(out=folder, run="first", **chosen))
    write_demo(demo, state=folder / "state", port=free_port())
    on = Standing(folder, demo)
    try:
        yield on
    finally:
        on.stop()
