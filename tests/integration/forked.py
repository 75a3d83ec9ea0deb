"""Real processes, forked from one that has imported everything: a start takes a tenth of the time.

`Served` forks from a small server, which each worker of pytest starts once. `Forked` forks from the
test process itself, for tests that patch modules first; that is slower, because a worker has grown
to half a gigabyte. Sockets, files, signals, working folder and exit codes are real. Only memory is
inherited, so a test that measures memory starts a fresh interpreter instead.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

POLL_S = 0.01
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.integration.preload"])


class Started(ABC):
    """A child process, with the part of subprocess.Popen that tests use."""

    def __init__(
        self,
        program: Callable[[], int],
        *,
        out: Path,
        err: Path | None = None,
        cwd: Path,
        environment: Mapping[str, str],
        session: bool = False,
    ) -> None:
        self.pid = self._begin((program, out, err or out, cwd, dict(environment), session))

    @abstractmethod
    def _begin(self, given: tuple[Any, ...]) -> int:
        """Call `_run` with what is given in a new process; returns its number."""

    @abstractmethod
    def poll(self) -> int | None:
        """The exit code, None while it runs."""

    def wait(self, timeout: float = 600.0) -> int:
        """The exit code."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("forked", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Served(Started):
    """A child of the fork server; its program can be pickled."""

    def _begin(self, given: tuple[Any, ...]) -> int:
        # A daemon ends with the test process, whatever a failed test leaves behind.
        self._process = _SERVER.Process(target=_run, args=given, daemon=True)
        _start(self._process)
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode


class Forked(Started):
    """A child of the test process, with all that the test has changed in memory."""

    def _begin(self, given: tuple[Any, ...]) -> int:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            gc.freeze()  # else the first full collection copies the memory of all test objects
            _run(*given)
        return pid

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _start(process: multiprocessing.process.BaseProcess) -> None:
    """Start it; the server starts with the first one, and finds its preload by this path."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        process.start()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _run(
    program: Callable[[], int],
    out: Path,
    err: Path,
    cwd: Path,
    environment: Mapping[str, str],
    session: bool,
) -> None:
    """Become the program, to its exit code."""
    code = 70
    try:
        if session:
            os.setsid()
        _become(out, err, cwd, environment)
        code = program()
    except SystemExit as ended:  # argparse leaves so
        code = ended.code if isinstance(ended.code, int) else 2
    except BaseException:  # noqa: BLE001 - a traceback and code 1, as at the end of a program
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(out: Path, err: Path, cwd: Path, environment: Mapping[str, str]) -> None:
    """Leave the tests behind: their streams, folder, variables, signals and event loop."""
    for path, number in ((os.devnull, 0), (out, 1), (err, 2)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(path, flags, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1, closefd=False)  # noqa: SIM115 - open to the end
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.excepthook = sys.__excepthook__
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio._set_running_loop(None)
