"""Starts the demo's services: forked from warm parents, or as new interpreters.

It owns the processes that the command line starts and their exit codes; warm.py is the other end.
Create it first, while this process has no threads. It imports what the command and a program share,
then forks the program's warm parent, which imports the rest while the command prepares the run. The
broker's parent is forked first, so it never loads numpy.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from hdpvfl_mq.app.demo import warm

LOST = 70  # exit code of a child whose parent was killed
# What this process, the parent of a program and the parents after it all need.
SHARED = {
    warm.BROKER: (
        "hdpvfl_mq.runtime.no_plugins",  # before pydantic
        "schemas.messages",
        "hdpvfl_mq.runtime.control",
        "hdpvfl_mq.runtime.keys",
        "hdpvfl_mq.runtime.settings",
    ),
    warm.PARTIES: (
        "hdpvfl_mq.data.without_pandas",
        "hdpvfl_mq.data.readers",
        "hdpvfl_mq.methods.recommend",
    ),
}
# Neither OpenBLAS nor the allocator that Arrow brings may start a thread before the fork.
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class Child(Protocol):
    """A process of the demo, with the part of subprocess.Popen that the cluster uses."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Nursery:
    """Starts services until it is closed; use it in a `with` statement."""

    def __init__(self, *, fork: bool = sys.platform == "linux") -> None:
        self._parents: dict[str, _Parent] = {}
        if fork:  # elsewhere the system's libraries do not survive a fork
            self._begin()

    def _begin(self) -> None:
        before = dict(os.environ)
        os.environ.update(NO_THREADS)
        gc.disable()  # nothing that is imported becomes garbage
        try:
            for program, shared in SHARED.items():
                for name in shared:
                    import_module(name)
                self._parents[program] = self._fork(program)
        finally:
            gc.enable()
            os.environ.clear()
            os.environ.update(before)

    def _fork(self, program: str) -> _Parent:
        near, far = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        # Functions that modules run at a fork drop an interrupt; and the new process must not get
        # one before it ignores them.
        signal.pthread_sigmask(signal.SIG_BLOCK, warm.SIGNALS)
        pid = os.fork()
        if pid == 0:
            near.close()
            self._close_lines()
            warm.become(program, far)
        far.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, warm.SIGNALS)
        return _Parent(pid, near)

    def _close_lines(self) -> None:
        for parent in self._parents.values():
            parent.close()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, program: str, settings: Path, log: Path) -> Child:
        """Start a program, such as `parties.__main__`, with its settings; output goes to `log`."""
        if not self._parents:
            return _spawned(program, settings, log)
        parent = self._parents[warm.BROKER if program == warm.BROKER else warm.PARTIES]
        return parent.start({"start": program, "settings": str(settings), "log": str(log)})

    def plan_ahead(self, manifest: dict[str, Any], rows: int) -> None:
        """Let the parties' parent compute the noise tables of a run while this process goes on."""
        if self._parents:
            self._parents[warm.PARTIES].send({"plan": manifest, "rows": rows})

    def close(self) -> None:
        """End the warm parents; children that still run notice it and stop."""
        self._close_lines()
        for parent in self._parents.values():
            if not parent.started:
                os.kill(parent.pid, signal.SIGKILL)  # it may still be importing
            os.waitpid(parent.pid, 0)
        self._parents.clear()


class _Parent:
    """The line to a warm parent."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid, self.started = pid, 0
        self._line, self._received = line, b""
        self.pids: dict[int, int] = {}
        self.codes: dict[int, int] = {}

    def start(self, wanted: dict[str, str]) -> _Forked:
        number = self.started
        self.started += 1
        self.send({**wanted, "child": number})
        return _Forked(self, number)

    def send(self, asked: dict[str, Any]) -> None:
        try:
            self._line.sendall(json.dumps(asked).encode() + b"\n")
        except OSError:  # the parent is gone, and read() says so
            self._lose()

    def read(self, wait_s: float) -> None:
        """Take what the parent has reported."""
        if self._line.fileno() < 0 or not select.select([self._line], [], [], wait_s)[0]:
            return
        more = b""
        with suppress(ConnectionError):  # the parent was killed before it had read everything
            more = self._line.recv(2**16)
        if not more:
            self._lose()
        *lines, self._received = (self._received + more).split(b"\n")
        for line in lines:
            said = json.loads(line)
            known = self.codes if "code" in said else self.pids
            known[said["child"]] = said["code" if "code" in said else "pid"]

    def _lose(self) -> None:
        self._line.close()
        for number in range(self.started):
            self.codes.setdefault(number, LOST)

    def close(self) -> None:
        self._line.close()


class _Forked:
    """A child of a warm parent."""

    def __init__(self, parent: _Parent, number: int) -> None:
        self._parent, self._number = parent, number

    @property
    def pid(self) -> int:
        """Its process id; 0 if its parent was killed before it could start it."""
        while self._number not in self._parent.pids and self.poll() is None:
            self._parent.read(1.0)
        return self._parent.pids.get(self._number, 0)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        self._parent.read(0.0)
        return self._parent.codes.get(self._number)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        end = time.monotonic() + (600.0 if timeout is None else timeout)
        while (code := self.poll()) is None:
            left = end - time.monotonic()
            if left <= 0.0:
                raise subprocess.TimeoutExpired(f"child {self._number}", timeout or 600.0)
            self._parent.read(left)
        return code

    def terminate(self) -> None:
        """Ask it to stop."""
        self._parent.send({"child": self._number, "signal": int(signal.SIGTERM)})

    def kill(self) -> None:
        """End it at once."""
        self._parent.send({"child": self._number, "signal": int(signal.SIGKILL)})


def _spawned(program: str, settings: Path, log: Path) -> Child:
    """A new interpreter, where nothing can be forked."""
    from hdpvfl_mq.runtime.process import PARENT_VARIABLE  # noqa: PLC0415 - not where all is forked

    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603 - this interpreter, and a file that the demo wrote
            [sys.executable, "-m", program.removesuffix(".__main__"), str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )
