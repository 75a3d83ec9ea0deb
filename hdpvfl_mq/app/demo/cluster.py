"""Local processes: start them, watch their status files, end them.

It owns child processes and nothing they say to each other. Ending is quick: children get a signal
and, if they do not go, are killed; their journals let the same run go on later.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.demo.prepare import Demo
from hdpvfl_mq.errors import NetworkError, error_of
from hdpvfl_mq.runtime import control, status
from hdpvfl_mq.runtime.process import EXIT_BY_OUTCOME, PARENT_VARIABLE
from hdpvfl_mq.runtime.settings import load_settings
from schemas.config import PartyServiceSettings
from schemas.ids import COORDINATOR

POLL_S = 0.1
GRACE_S = 1.5


class Cluster:
    """The broker and all parties of a demo on this machine."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, show: Callable[[Mapping[str, dict[str, Any]]], None]) -> None:
        """Start the services, propose the run and wait for its end; raises what stopped it."""
        # A service manager's SIGTERM ends the children as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for name in (COORDINATOR, *self._demo.parties):
                self._start(name)
            self._propose()
            while not self._is_over():
                show(self.statuses())
                self._check()
                time.sleep(POLL_S)
            show(self.statuses())
        finally:
            self.stop()

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What every process says of itself."""
        names = (COORDINATOR, *self._demo.parties)
        return {name: status.read(self._demo.folder / name / "status.json") for name in names}

    def _propose(self) -> None:
        """Ask for the run as its active party; a run that is known already goes on."""
        manifest = json.loads(self._demo.manifest.model_dump_json())
        while (
            self._ask(self._demo.parties[0], {"command": "propose", "manifest": manifest}) is None
        ):
            self._check()
            time.sleep(POLL_S)

    def _ask(self, party: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """A service's answer; None while it does not listen."""
        folder = Path(load_settings(PartyServiceSettings, self._demo.service(party)).state) / party
        try:
            return control.ask(folder, question, what="hdpvfl party")
        except (NetworkError, OSError):
            return None

    def _is_over(self) -> bool:
        """Whether every party has its result; raises how else the run ended."""
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
        """End whatever still runs, within two seconds."""
        alive = [child for child in self._children.values() if child.poll() is None]
        for child in alive:
            child.terminate()
        deadline = time.monotonic() + GRACE_S
        for child in alive:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _start(self, name: str) -> None:
        module = "broker" if name == COORDINATOR else "parties"
        folder = self._demo.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        log = (folder / "console.log").open("ab")
        self._children[name] = subprocess.Popen(  # noqa: S603 - this interpreter, own modules
            [sys.executable, "-m", module, str(self._demo.service(name))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )
        log.close()

    def _check(self) -> None:
        """Raise for the first process that ended, or could not take part, in its own words."""
        for name, child in self._children.items():
            code = child.poll()
            if code is not None:
                text = _last_line(self._demo.folder / name / "console.log")
                raise error_of(code, text or f"{name} ended with code {code}")
            said = status.read(self._demo.folder / name / "status.json")
            if said.get("phase") == "stopped":
                raise error_of(said.get("exit", 2), said["reason"])


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
