"""Local processes: start them, watch their status files, end them.

It owns the child processes, not the messages between them. They run the production programs, forked
from this process, which has imported all modules they need, so no child waits for imports. Ending
is quick: children get a signal and are killed if they do not exit; their journals let the same run
continue later.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from broker.__main__ import main as broker_main
from hdpvfl_mq.app.demo.prepare import Demo
from hdpvfl_mq.errors import NetworkError, error_of
from hdpvfl_mq.runtime import control, status
from hdpvfl_mq.runtime.process import EXIT_BY_OUTCOME, PARENT_VARIABLE
from hdpvfl_mq.runtime.settings import load_settings
from parties.__main__ import main as party_main
from schemas.config import PartyServiceSettings
from schemas.ids import COORDINATOR

POLL_S = 0.05
GRACE_S = 1.5
_PR_SET_NAME = 15

Main = Callable[[Path], int]
Statuses = Mapping[str, dict[str, Any]]


class Cluster:
    """The broker and all parties of a demo on this machine."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._children: dict[str, BaseProcess] = {}

    def __enter__(self) -> Cluster:
        """Start the services; enter this before the process has threads, because it forks."""
        # SIGTERM from a service manager ends the children the same way as Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for name in (COORDINATOR, *self._demo.parties):
                self._start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, show: Callable[[Statuses], None]) -> None:
        """Propose the run and wait for its end; raises the error that stopped it."""
        self._propose()
        while not self._is_over():
            show(self.statuses())
            self._check()
            time.sleep(POLL_S)
        show(self.statuses())

    def statuses(self) -> dict[str, dict[str, Any]]:
        """The status of every process."""
        names = (COORDINATOR, *self._demo.parties)
        return {name: status.read(self._demo.folder / name / "status.json") for name in names}

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
        folder = Path(load_settings(PartyServiceSettings, self._demo.service(party)).state) / party
        try:
            return control.ask(folder, question, what="hdpvfl party")
        except (NetworkError, OSError):
            return None

    def _is_over(self) -> bool:
        """Whether every party has its result; raises an error if the run ended without one."""
        over = status.read(self._demo.folder / COORDINATOR / "status.json").get("outcome")
        first = self._demo.parties[0]
        for party in self._demo.parties if over else (first,):
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

    def stop(self) -> None:
        """End all processes that still run, within two seconds."""
        alive = [child for child in self._children.values() if child.is_alive()]
        for child in alive:
            child.terminate()
        deadline = time.monotonic() + GRACE_S
        for child in alive:
            child.join(max(0.0, deadline - time.monotonic()))
            if child.is_alive():
                child.kill()
                child.join()

    def main_of(self, name: str) -> Main:
        """The main function of a process."""
        return broker_main if name == COORDINATOR else party_main

    def _start(self, name: str) -> None:
        folder = self._demo.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        child = _context().Process(
            target=_become, args=(self.main_of(name), self._demo.service(name), folder, os.getpid())
        )
        child.start()
        self._children[name] = child

    def _check(self) -> None:
        """Raise the error of the first process that ended or could not take part."""
        for name, child in self._children.items():
            code = child.exitcode
            if code is not None:
                text = _last_line(self._demo.folder / name / "console.log")
                raise error_of(code, text or f"{name} ended with code {code}")
            said = status.read(self._demo.folder / name / "status.json")
            if said.get("phase") == "stopped":
                raise error_of(said.get("exit", 2), said["reason"])


def _context() -> ForkContext | SpawnContext:
    """Fork on Linux; spawn where the system's libraries do not survive a fork."""
    if sys.platform == "linux":
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def _become(main: Main, settings: Path, folder: Path, parent: int) -> None:
    """Run `main` in the child, with signals, output and name as if a shell had started it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ[PARENT_VARIABLE] = str(parent)
    log = (folder / "console.log").open("a", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    sys.stdout = sys.stderr = log
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, settings.stem.encode(), 0, 0, 0)
    code = main(settings)
    log.flush()
    os._exit(code)  # skip cleanup: inherited resources belong to the parent


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
