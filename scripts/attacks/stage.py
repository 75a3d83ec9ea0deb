"""A federation of real processes to attack, and what its processes recorded.

It owns processes, measuring, and reading journals and exit codes; it knows no attack.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.reader import read_evidence, read_transcript
from hdpvfl_mq.runtime.keys import Keys, load_keys
from hdpvfl_mq.runtime.settings import load_settings
from schemas.config import BrokerSettings
from schemas.ids import COORDINATOR
from schemas.records import Refused, TurnedAway, Withheld
from scripts import verify_journal
from scripts.attacks.liar import main as lying
from tests.integration.forked import Served
from tests.integration.processes import Processes, environment, processes

MIB = 1024.0
WAIT_S = 240.0
LIMIT_MIB = 256.0


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    attack: str
    by: str
    noticed_by: str
    by_what: str
    cost: str
    held: bool


@dataclass
class Stage:
    """A federation of processes and its files on disk."""

    started: Processes
    peak_mib: dict[str, float] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return self.started.folder / "runs" / "test-run"

    @property
    def broker(self) -> BrokerSettings:
        """The address of the broker."""
        return load_settings(BrokerSettings, self.started.demo.settings(COORDINATOR))

    def keys(self, party: str) -> Keys:
        """A process's keys, which its operator also has."""
        return load_keys(self.run / "keys" / party)

    def start(self, liar: str = "", lie: str = "") -> None:
        """Start all processes, one of them with a lie."""
        honest = [name for name in self.started.names if name != liar]
        self.started.start(*honest)
        if liar:
            self.start_liar(liar, lie)

    def start_liar(self, liar: str, lie: str) -> None:
        """Start one process with a lie."""
        start = _in_new_interpreter if self.started.fresh else _forked
        self.started.children[liar] = start(self.started, liar, lie)

    def measure(self) -> None:
        """Record the peak memory of each process so far."""
        for name, child in self.started.children.items():
            if child.poll() is None:
                found = memory_mib(child.pid, "VmHWM")
                self.peak_mib[name] = max(self.peak_mib.get(name, 0.0), found)

    def wait(self, honest: tuple[str, ...], wait_s: float = WAIT_S) -> dict[str, int | None]:
        """Wait for the honest processes; returns exit codes, None for one that still runs."""
        end = time.monotonic() + wait_s
        children = self.started.children
        while time.monotonic() < end and any(children[n].poll() is None for n in honest):
            self.measure()
            time.sleep(0.05)
        return {name: children[name].poll() for name in honest}

    def weights(self, party: str) -> Any:
        """The model a party wrote, or None."""
        path = self.run / party / "model.json"
        return json.loads(path.read_text())["weights"] if path.exists() else None

    def journal_mib(self, party: str) -> float:
        """What a process's journal takes on disk."""
        return sum(f.stat().st_size for f in (self.run / party).glob("journal.db*")) / 2**20

    def refusals(self, party: str) -> list[str]:
        """Everything a process has refused, on receipt or in a step."""
        return refused_in(self.run / party / "journal.db", party)

    def verdicts(self, honest: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
        """The exit codes of both verifiers for each honest journal alone."""
        return tuple(self._verdict(party) for party in honest)

    def _verdict(self, party: str) -> tuple[int, int]:
        with tempfile.TemporaryDirectory(prefix="hdpvfl-shown-") as folder:
            shown = Path(folder) / self.run.name
            shutil.copytree(self.run / "settings", shown / "settings")
            (shown / party).mkdir()
            for file in (self.run / party).glob("journal.db*"):
                shutil.copy(file, shown / party)
            found = verify_journal.verify(shown)
            second = 0 if not found else 5 if min(found) <= 5 else 1
            return exit_code(audit(read_evidence(shown))), second

    def rounds(self) -> int:
        """The number of rounds the active party has done."""
        try:
            status = json.loads((self.run / "active" / "status.json").read_text())
        except (OSError, ValueError):
            return 0
        return int(status.get("round") or 0)

    def speed(self, seconds: float) -> float:
        """Rounds per second."""
        before, began = self.rounds(), time.monotonic()
        end = began + seconds
        while time.monotonic() < end:
            self.measure()
            time.sleep(0.1)
        return (self.rounds() - before) / (time.monotonic() - began)


def _in_new_interpreter(started: Processes, liar: str, lie: str) -> subprocess.Popen[bytes]:
    with started.log(liar).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "scripts.attacks.liar", lie, started.settings(liar)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=started.folder,
            env=environment(),
        )


def _forked(started: Processes, liar: str, lie: str) -> Served:
    program = partial(lying, lie, Path(started.settings(liar)))
    return Served(program, out=started.log(liar), cwd=started.folder, environment=environment())


def refused_in(path: Path, party: str) -> list[str]:
    """What the owner of a journal has refused, on receipt or in a step."""
    if not path.exists():
        return []
    records = read_transcript(path, party).records
    at_the_door = (TurnedAway, Withheld)
    turned_away = [r.input.reason for r in records if isinstance(r.input, at_the_door)]
    in_steps = (e for record in records for e in record.effects if isinstance(e, Refused))
    return turned_away + [effect.reason for effect in in_steps]


def memory_mib(pid: int, line: str = "VmRSS") -> float:
    """A process's memory; 0 if the process has ended."""
    try:
        for text in Path(f"/proc/{pid}/status").read_text().splitlines():
            if text.startswith(line):
                return int(text.split()[1]) / MIB
    except OSError:
        pass
    return 0.0


@contextmanager
def stage(folder: Path, **options: Any) -> Iterator[Stage]:
    """A federation with fixed secrets; processes that still run at the end are killed."""
    settings: dict[str, Any] = {"guarantee": "none", "epochs": 4, "passives": 2, **options}
    with processes(folder, secrets=True, **settings) as started:
        for party in started.demo.parties:
            started.change(party, patience_s=60.0)
        started.fresh = True  # the memory of the processes is measured
        yield Stage(started)


@contextmanager
def in_background(work: Any) -> Iterator[threading.Event]:
    """Run a function in the background and ask it to stop at the end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(10.0)


Weights = Mapping[str, Any]
