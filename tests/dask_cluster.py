"""A Dask scheduler and its workers, each a process of its own on the loopback interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


class DaskCluster:
    """One scheduler; workers come and go. Everything they print is in `log`."""

    def __init__(self, folder: Path, *options: str, protocol: str = "tcp") -> None:
        self.folder, self.options, self.workers = folder, options, []
        self.log = folder / "dask.log"
        self._file = folder / "scheduler.json"
        where = ("--host", "127.0.0.1", "--port", "0", "--protocol", protocol)
        self._scheduler = self._start("scheduler", *where)

    def _start(self, program: str, *more: str) -> subprocess.Popen:
        common = ("--scheduler-file", str(self._file), "--no-dashboard", *self.options, *more)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{program}", *common],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"},
                stdout=log,
                stderr=log,
            )

    @property
    def address(self) -> str:
        """Where the scheduler listens."""
        for _ in range(1200):
            if self._file.exists() and (text := self._file.read_text()):
                return json.loads(text)["address"]
            time.sleep(0.05)
        raise TimeoutError(self.log.read_text()[-2000:])

    def add(self) -> None:
        """Start another worker: one thread, nobody to restart it."""
        here = ("--no-nanny", "--nthreads", "1", "--local-directory", str(self.folder))
        self.workers.append(self._start("worker", *here))

    def kill(self) -> None:
        """Kill the oldest worker."""
        first = self.workers.pop(0)
        first.kill()
        first.wait()

    def close(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()
