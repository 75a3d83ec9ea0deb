"""Local processes: start them, watch their status files, end them.

It owns child processes and nothing they say to each other. Ending is quick: children get a signal
and, if they do not go, are killed; their journals let the same run go on later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.demo.prepare import Demo
from hdpvfl_mq.errors import HdpvflError, IntegrityError, NetworkError, OperatorError, RefusedError
from hdpvfl_mq.runtime import status
from hdpvfl_mq.runtime.process import PARENT_VARIABLE
from schemas.ids import COORDINATOR

POLL_S = 0.1
GRACE_S = 1.5
_ERROR_BY_EXIT: dict[int, type[HdpvflError]] = {
    2: OperatorError,
    3: RefusedError,
    4: NetworkError,
    5: IntegrityError,
}


class Cluster:
    """The broker and all parties of a demo on this machine."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, show: Callable[[Mapping[str, dict[str, Any]]], None]) -> None:
        """Start everything and wait for the end; raises what stopped it."""
        # A service manager's SIGTERM ends the children as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for name in (COORDINATOR, *self._demo.parties):
                self._start(name)
            while any(child.poll() is None for child in self._children.values()):
                show(self.statuses())
                self._check()
                time.sleep(POLL_S)
            self._check()
            show(self.statuses())
        finally:
            self.stop()

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What every process says of itself."""
        names = (COORDINATOR, *self._demo.parties)
        return {name: status.read(self._demo.folder / name / "status.json") for name in names}

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
            [sys.executable, "-m", module, str(self._demo.settings(name))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )
        log.close()

    def _check(self) -> None:
        """Raise for the first process that ended badly, in the words of its console."""
        for name, child in self._children.items():
            code = child.poll()
            if code in (None, 0):
                continue
            time.sleep(POLL_S)  # let the others write down why
            text = _last_line(self._demo.folder / name / "console.log")
            raise _ERROR_BY_EXIT.get(code, OperatorError)(text or f"{name} ended with code {code}")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
