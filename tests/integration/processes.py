"""Real processes for tests: they use the demo's files and start and end one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from broker.__main__ import main as broker_main
from hdpvfl_mq.app import cli
from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.prepare import Demo, free_port, write_demo
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.runtime.keys import write_secret
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from parties.__main__ import main as party_main
from schemas.config import BrokerSettings, PartySettings
from schemas.ids import COORDINATOR
from tests.integration.forked import Forked, Served, Started

ROOT = Path(__file__).parents[2]
# Few rows, so a delta that is small beside 1 / rows is not needed to see the protocol work.
QUICK_DATA = {"dataset": "breast", "delta": 1e-2}
WAIT_S = 120.0  # machines that run tests are busy


def hdpvfl(*arguments: object, cwd: Path, wait_s: float = WAIT_S) -> subprocess.CompletedProcess:
    """One command of the command line, to its end."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        child = command(*words, out=out, err=err, cwd=cwd)
        try:
            code = child.wait(wait_s)
        finally:
            child.kill()
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


def command(
    *words: str, out: Path, err: Path | None = None, cwd: Path, session: bool = False
) -> Started:
    """A command of the command line, started."""
    return Served(
        partial(cli.main, words),
        out=out,
        err=err,
        cwd=cwd,
        environment=environment(),
        session=session,
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def command_lines(words: str) -> list[int]:
    """Processes whose command line has these words, this one aside."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in line and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def wait_for(found, what: str, wait_s: float = WAIT_S):
    """Poll for something that must come."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {wait_s} s")


@dataclass
class Processes:
    """A demo on disk and its processes."""

    folder: Path
    demo: Demo
    state: Path
    children: dict[str, subprocess.Popen | Started] = field(default_factory=dict)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)  # first thing in a process
    fresh: bool = False  # new interpreters, for who measures memory
    inherits: ClassVar[bool] = False  # forked from this process, for who patches modules first

    @property
    def names(self) -> tuple[str, ...]:
        return (COORDINATOR, *self.demo.parties)

    def start(self, *names: str) -> None:
        for name in names or self.names:
            if self.fresh:
                self.children[name] = self._fresh(name)
                continue
            fork = Forked if self.inherits else Served
            self.children[name] = fork(
                partial(_service, name, Path(self.settings(name)), self.before.get(name)),
                out=self.log(name),
                cwd=self.folder,
                environment=environment(),
            )

    def _fresh(self, name: str) -> subprocess.Popen:
        module = "broker" if name == COORDINATOR else "parties"
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, self.settings(name)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment(),
            )

    def settings(self, name: str) -> str:
        return str(self.demo.settings(name))

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log(name).read_text()

    def end(self) -> dict[str, int]:
        """Everybody's exit code."""
        codes = {name: child.wait(WAIT_S) for name, child in self.children.items()}
        assert set(codes.values()) == {0}, {n: (c, self.said(n)) for n, c in codes.items()}
        return codes

    def stop(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.wait()

    def change(self, name: str, **changes) -> None:
        """Rewrite a process's settings file."""
        schema = BrokerSettings if name == COORDINATOR else PartySettings
        settings = load_settings(schema, self.demo.settings(name))
        self.demo.settings(name).write_text(
            dump_settings(schema(**{**fields_of(settings), **changes}))
        )

    def entries(self, party: str) -> list:
        ledger = Ledger.open(self.state / party / "ledger.db", party)
        try:
            return list(ledger.entries())
        finally:
            ledger.close_file()


def _service(name: str, settings: Path, before: Callable[[], None] | None) -> int:
    if before is not None:
        before()
    return broker_main(settings) if name == COORDINATOR else party_main(settings)


@contextmanager
def processes(
    folder: Path, *, secrets: bool = False, before: Callable[[], None] | None = None, **options
) -> Iterator[Processes]:
    """A demo written to a folder; whatever still runs at the end is killed.

    Every process calls `before` first.
    """
    demo = prepare_demo(UpOptions(out=folder, run="test-run", **{**QUICK_DATA, **options}))
    state = folder / "state"
    write_demo(demo, state=state, port=free_port())
    if secrets:
        fix_secrets(demo, state)
    started = Processes(folder, demo, state)
    if before is not None:
        started.before = dict.fromkeys(started.names, before)
    try:
        yield started
    finally:
        started.stop()


def fix_secrets(demo: Demo, state: Path) -> None:
    """The same secret seeds every time."""
    for number, party in enumerate(demo.parties):
        write_secret(state / party / "secrets" / "test-run.secret", bytes([number + 1]) * 48)
        write_secret(state / party / "ledger.secret", bytes([number + 1]) * 32)
