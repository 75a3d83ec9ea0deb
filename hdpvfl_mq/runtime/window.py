"""Shows the state of a running service once a second, from one reading of its status.

It owns when each is written: a line on a terminal, a notification to the service manager, a log
line when a run's phase or what it waits for changes. It changes nothing in the service.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from hdpvfl_mq.runtime.endpoints import serve
from hdpvfl_mq.runtime.in_short import ENDED, service_in_short
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.notify import Manager
from hdpvfl_mq.runtime.page import Look, PageFiles
from schemas.base import printable

TICK_S = 1.0


class Window:
    """Shows one service to its operator, a terminal and the service manager."""

    def __init__(self, look: Look, log: Log) -> None:
        self._look, self._log = look, log
        self._manager = Manager()
        self._seen: dict[str, tuple[Any, ...]] = {}

    async def run(self) -> None:
        """Show the status for ever; if this loop hangs, the watchdog gets no notification."""
        self._manager.tell(READY=1, MAINPID=os.getpid())
        while True:
            status = self._look()
            self._log_changes(status)
            line = printable(service_in_short(status))
            self._manager.tell(STATUS=line, WATCHDOG=1)
            self._log.show(line)
            await asyncio.sleep(TICK_S)

    async def serve(self, address: str, place: PageFiles) -> None:
        """Serve the endpoints and the page on loopback."""
        await serve(address, self._look, place)

    def close(self) -> None:
        """Notify the service manager that the service is about to end."""
        self._manager.tell(STOPPING=1)

    def _log_changes(self, status: dict[str, Any]) -> None:
        federations = status.get("federations", {"": status})
        runs = {n: r for each in federations.values() for n, r in each["runs"].items()}
        for name, run in runs.items():
            if run["phase"] in ENDED:  # an ended run has its own log line
                continue
            now = (run["phase"], tuple(run.get("waiting_for") or ()))
            before = self._seen.get(name, ("", ()))
            self._seen[name] = now
            if now[0] != before[0]:
                self._log.say("run_phase", run=name, phase=now[0])
            if now[1] and now[1] != before[1]:
                self._log.say("run_waits", run=name, waiting_for=list(now[1]))
