"""A small process that has imported a program and forks it on request, without further imports.

It owns the loop of such a process and what a forked child becomes; nursery.py asks it. It opens no
socket of the protocol, starts no thread, draws nothing and reads no key or row before it forks:
each child is a process of its own, with its own limits, keys, files and random numbers. It ends
when the process that started it is gone, and its children notice that and stop.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from hdpvfl_mq.errors import HdpvflError

BROKER, PARTIES = "broker.__main__", "parties.__main__"
# What a program imports only if it serves a federation, as all of the demo do.
SERVICES = {BROKER: (), PARTIES: ("parties.process.commands", "parties.process.service")}
EXIT_FAILED = 1
LINE_MAX = 2**20
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_NAME = 15


def become(program: str, line: socket.socket) -> NoReturn:
    """Turn this process, just forked, into the warm parent of a program."""
    code = EXIT_FAILED
    try:
        for number in SIGNALS:  # they end the command, which ends this
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        _system_call(_PR_SET_NAME, f"warm-{program.split('.', maxsplit=1)[0]}".encode())
        for name in (program, *SERVICES[program]):
            import_module(name)
        Warm(line).serve()
        code = 0
    except BaseException:  # noqa: BLE001 - this process must not go on as the one it was forked from
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


class Warm:
    """The loop of a process that forks children on request."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._children: dict[int, int] = {}  # process id -> number that the client gave
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Answer requests until the other end is closed."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        gc.collect()
        gc.freeze()  # what was imported stays shared: the collector does not write to it
        gc.enable()
        received = b""
        while True:
            ready, _, _ = select.select([self._line.fileno(), self._woken], [], [])
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 512)
                self._reap()
            if self._line.fileno() not in ready:
                continue
            more = b""
            with suppress(ConnectionError):  # the command was killed
                more = self._line.recv(2**16)
            if not more or len(received) > LINE_MAX:
                self._reap()
                return
            *lines, received = (received + more).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))

    def _obey(self, asked: dict[str, Any]) -> None:
        if "plan" in asked:
            _plan_ahead(asked["plan"], asked["rows"])
        elif "start" in asked:
            self._fork(asked)
        else:
            for pid, number in self._children.items():
                if number == asked["child"]:
                    os.kill(pid, asked["signal"])

    def _fork(self, asked: dict[str, Any]) -> None:
        # A signal that comes at once must find the child's handlers, not those of this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._children[pid] = asked["child"]
            self._tell({"child": asked["child"], "pid": pid})
            return
        code = EXIT_FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._line.close()
            os.close(self._woken)
            os.close(self._wake)
            code = _run(asked["start"], Path(asked["settings"]), Path(asked["log"]))
        except BaseException:  # noqa: BLE001 - a traceback in its log and code 1, as of any program
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            os._exit(code)  # skip cleanup: inherited resources belong to the parent

    def _reap(self) -> None:
        """Report children that have ended."""
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if (number := self._children.pop(pid, None)) is not None:
                self._tell({"child": number, "code": os.waitstatus_to_exitcode(status)})

    def _tell(self, news: dict[str, int]) -> None:
        with suppress(OSError):  # nobody listens any more: the next read says so
            self._line.sendall(json.dumps(news).encode() + b"\n")


def _run(program: str, settings: Path, log: Path) -> int:
    """Run a program's main function, with signals, files and name as if it had been started."""
    from hdpvfl_mq.runtime.process import PARENT_VARIABLE  # noqa: PLC0415 - not in the command line

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[PARENT_VARIABLE] = str(os.getppid())
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    out = log.open("a", buffering=1)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    sys.stdout = sys.stderr = out
    _system_call(_PR_SET_NAME, settings.stem.encode())
    # Not before: the traceback of a signal belongs into the log, not on the operator's terminal.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    code: int = import_module(program).main(settings)
    return code


def _plan_ahead(manifest: dict[str, Any], rows: int) -> None:
    """Plan a run, so that children inherit its noise tables: functions of public values.

    A child with a different number of rows computes its own.
    """
    from hdpvfl_mq.methods import plan_run  # noqa: PLC0415 - only the parties' parent plans
    from hdpvfl_mq.runtime.settings import check_settings  # noqa: PLC0415 - as above
    from schemas.config import RunManifest  # noqa: PLC0415 - as above

    with suppress(HdpvflError):
        plan_run(check_settings(RunManifest, manifest, "plan"), rows)


def _system_call(option: int, value: Any) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
