"""Local processes: start them, watch their status files, end them.

It owns the child processes, not the messages between them. They run the production programs, which
nursery.py starts. Ending is quick: children get a signal and are killed if they do not exit; their
journals let the same run continue later.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hdpvfl_mq.app.demo.nursery import Child, Nursery
from hdpvfl_mq.app.demo.prepare import Demo
from hdpvfl_mq.app.demo.warm import BROKER, PARTIES
from hdpvfl_mq.errors import EXIT_BY_OUTCOME, NetworkError, error_of
from hdpvfl_mq.runtime import control, status
from hdpvfl_mq.runtime.settings import load_settings
from schemas.config import BrokerServiceSettings, PartyServiceSettings
from schemas.ids import COORDINATOR

POLL_S = 0.02
SHOW_EVERY_S = 0.1  # reading every status file costs more than looking whether the run is over
GRACE_S = 1.5
MEMBERS_S = 5.0

Statuses = Mapping[str, dict[str, Any]]


class Cluster:
    """The broker and all parties of a demo on this machine."""

    def __init__(self, demo: Demo, nursery: Nursery | None = None) -> None:
        self._demo = demo
        self._nursery, self._is_own = nursery, nursery is None
        self._children: dict[str, Child] = {}
        self._states: dict[str, Path] = {}
        self._next_look_s = 0.0
        self._is_stopping = self._is_interrupted = False

    def __enter__(self) -> Cluster:
        """Start the services; without a nursery this forks, so there must be no threads yet."""
        # SIGTERM from a service manager ends the children the same way as Ctrl-C. Python sets no
        # handler for Ctrl-C where it was started with it ignored, but the services set theirs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)
        nursery = self._nursery = self._nursery or Nursery()
        try:
            for name in (COORDINATOR, *self._demo.parties):
                self._start(nursery, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes. After Ctrl-C no other error counts: the signal has caused it."""
        self.stop()
        if self._is_own and self._nursery is not None:
            self._nursery.close()
            self._nursery = None
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, *_: object) -> NoReturn:
        """Stop, and remember it: a module that is being imported may catch the interrupt."""
        self._is_interrupted = True
        raise KeyboardInterrupt

    def run(
        self, show: Callable[[Statuses], None], meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Propose the run and wait for its end; raises the error that stopped it.

        `meanwhile` is called once, while the parties are at work.
        """
        self._await_members()
        self._propose()
        meanwhile()
        while not self._is_over():
            if time.monotonic() >= self._next_look_s:
                self._next_look_s = time.monotonic() + SHOW_EVERY_S
                show(self.statuses())
                self._check()
            time.sleep(POLL_S)
        show(self.statuses())

    def statuses(self) -> dict[str, dict[str, Any]]:
        """The status of every process."""
        names = (COORDINATOR, *self._demo.parties)
        return {name: status.read(self._demo.folder / name / "status.json") for name in names}

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of all processes."""
        return tuple(child.pid for child in self._children.values())

    def _await_members(self) -> None:
        """Wait until all parties are connected: a late one gets the proposal half a second later.

        A party that does not come is reported by the run itself.
        """
        folder = Path(load_settings(BrokerServiceSettings, self._demo.service(COORDINATOR)).state)
        give_up_s = time.monotonic() + MEMBERS_S
        connected: set[str] = set()
        while not connected.issuperset(self._demo.parties) and time.monotonic() < give_up_s:
            time.sleep(POLL_S)
            self._check()
            with suppress(NetworkError, OSError):
                status_now = control.ask(folder / "broker", {"command": "status"}, what="broker")
                connected = set(status_now["federations"][self._demo.federation]["connected"])

    def _propose(self) -> None:
        """Propose the run as its active party; a run that is already known continues."""
        manifest = json.loads(self._demo.manifest.model_dump_json())
        while (
            self._ask(self._demo.parties[0], {"command": "propose", "manifest": manifest}) is None
        ):
            self._check()
            time.sleep(POLL_S)

    def _ask(self, party: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """A service's answer; None if the service is not listening yet."""
        if party not in self._states:
            settings = load_settings(PartyServiceSettings, self._demo.service(party))
            self._states[party] = Path(settings.state) / party
        try:
            return control.ask(self._states[party], question, what="hdpvfl party")
        except (NetworkError, OSError):
            return None

    def _is_over(self) -> bool:
        """Whether every party has its result; raises an error if the run ended without one."""
        over = status.read(self._demo.folder / COORDINATOR / "status.json").get("outcome")
        if not over and time.monotonic() < self._next_look_s:
            return False
        for party in self._demo.parties if over else self._demo.parties[:1]:
            answer = self._ask(party, {"command": "runs"})
            run = (answer or {}).get("runs", {}).get(self._demo.manifest.run)
            if run is None or run["phase"] not in ("over", "refused"):
                return False
            outcome = run["outcome"] or run["phase"]
            if outcome != "completed":
                self._check()
                text = f"{party}: run {outcome}: {run['reason']}"
                raise error_of(EXIT_BY_OUTCOME.get(outcome, 1), text)
        return bool(over)

    def begin_stop(self) -> None:
        """Ask all processes that still run to end, once, and do not wait for it."""
        if self._is_stopping:
            return
        self._is_stopping = True
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()

    def stop(self) -> None:
        """End all processes that still run, within two seconds."""
        self.begin_stop()
        alive = [child for child in self._children.values() if child.poll() is None]
        deadline = time.monotonic() + GRACE_S
        for child in alive:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def program_of(self, name: str) -> str:
        """The program that a process runs."""
        return BROKER if name == COORDINATOR else PARTIES

    def _start(self, nursery: Nursery, name: str) -> None:
        folder = self._demo.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        program, settings = self.program_of(name), self._demo.service(name)
        self._children[name] = nursery.start(program, settings, folder / "console.log")

    def _check(self) -> None:
        """Raise the error of the first process that ended or could not take part."""
        if self._is_interrupted:
            raise KeyboardInterrupt
        for name, child in self._children.items():
            code = child.poll()
            if code is not None:
                text = _last_line(self._demo.folder / name / "console.log")
                raise error_of(code, text or f"{name} ended with code {code}")
            said = status.read(self._demo.folder / name / "status.json")
            if said.get("phase") == "stopped":
                raise error_of(said.get("exit", 2), said["reason"])


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else ""
