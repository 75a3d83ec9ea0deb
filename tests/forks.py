"""Run test files in forks of one process that has imported them all: `pytest -p tests.forks`.

Importing and collecting takes ten seconds of processor time; here it is done once, not once for
each worker. A file stays in one worker, so what its tests share is made once. Workers take the next
file from a pipe. A test whose worker dies is reported as failed, as are the rest of its file.
"""

from __future__ import annotations

import multiprocessing
import os
import struct
import warnings
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

LOOK_S = 1.0  # how long a worker may be dead before it is noticed
SAFE = {"jemalloc_bg_thd"}  # begins again in a fork by itself
_FORK = multiprocessing.get_context("fork")
_NUMBER = struct.Struct("H")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=2, metavar="N", help="how many workers to fork")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if session.config.option.collectonly or session.testsfailed:
        return None  # nothing to run: pytest itself says so
    if threads := _threads():
        names = ", ".join(threads)
        raise pytest.UsageError(f"a test file started threads when it was imported: {names}")
    _Spread(session).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


def _threads() -> list[str]:
    """Threads of this process that its forks would lack, by name."""
    tasks = sorted(Path("/proc/self/task").glob("*"), key=lambda task: int(task.name))
    names = [(task / "comm").read_text().strip() for task in tasks[1:]]
    return [name for name in names if name not in SAFE]


class _Spread:
    """The files of a session, its workers, and what they report."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._hook = session, session.config.hook
        self._files = [list(of) for _, of in groupby(session.items, lambda item: item.path)]
        self._open = {item.nodeid: item for item in session.items}  # without a result so far
        self._folders = session.config._tmp_path_factory  # type: ignore[attr-defined] # no public way
        self._folders.getbasetemp()  # made before the workers are, so that they share one
        self._queue, write = os.pipe()
        os.write(write, b"".join(map(_NUMBER.pack, range(len(self._files)))))
        os.close(write)

    def run(self) -> None:
        """Until every worker has ended."""
        count = min(self._session.config.option.forks, len(self._files))
        workers = dict(self._fork(number) for number in range(count))
        while workers:
            ended = {pipe for pipe in wait(list(workers), LOOK_S) if not self._hear(pipe)}
            # A process that a dead worker has left behind may keep its pipe open.
            ended |= {p for p, worker in workers.items() if not (worker.is_alive() or p.poll())}
            for pipe in ended:
                workers.pop(pipe).join()
        os.close(self._queue)
        if not self._session.shouldfail:
            self._report_lost()

    def _fork(self, number: int) -> tuple[Connection, Any]:
        pipe, end = _FORK.Pipe(duplex=False)
        worker = _FORK.Process(target=self._work, args=(number, end))
        worker.start()
        end.close()
        return pipe, worker

    def _hear(self, pipe: Connection) -> bool:
        """Pass on what a worker reports; false at its end."""
        try:
            kind, told = pipe.recv()
        except EOFError:
            return False
        if kind == "warning":
            self._hook.pytest_warning_recorded.call_historic(kwargs=told)
        else:
            self._pass_on(told)
        return True

    def _pass_on(self, told: dict[str, Any]) -> None:
        report = self._hook.pytest_report_from_serializable(config=self._session.config, data=told)
        if report.when == "teardown":
            self._open.pop(report.nodeid, None)
        self._hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail:  # workers end after the file they are at
            os.read(self._queue, 1 << 20)

    def _report_lost(self) -> None:
        for nodeid, item in self._open.items():
            why = "the worker of this file ended before this test did"
            lost = pytest.TestReport(nodeid, item.location, {}, "failed", why, "call")
            self._hook.pytest_runtest_logreport(report=lost)

    # -- in a worker -----------------------------------------------------------------------------

    def _work(self, number: int, pipe: Connection) -> None:
        config = self._session.config
        captured = config.pluginmanager.getplugin("capturemanager")
        captured.stop_global_capturing()  # its file is shared with the other workers
        captured.start_global_capturing()
        folder = self._folders.getbasetemp() / f"w{number}"  # short: sockets are made in it
        folder.mkdir()
        self._folders._basetemp = folder
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(_Teller(config, pipe))
        for item, after in pairwise(chain(self._items(), [None])):
            config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._session.shouldfail:
                return

    def _items(self) -> Iterator[pytest.Item]:
        while number := os.read(self._queue, _NUMBER.size):
            yield from self._files[_NUMBER.unpack(number)[0]]


class _Teller:
    """Reports what happens in a worker to the process that prints it."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(("report", told))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        if when != "runtest":  # recorded before the fork
            return
        said = warning_message
        text = warnings.WarningMessage(str(said.message), said.category, said.filename, said.lineno)
        told = {"warning_message": text, "when": when, "nodeid": nodeid, "location": location}
        self._pipe.send(("warning", told))
