"""A member that changes its files after a run: both verifiers, as processes, must alarm alike.

It owns the changes of a finished run's files; the journals are those of real processes.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, Entry, decode, encode, extend
from schemas.privacy import CapFixed, ReleaseBooked
from scripts import verify_journal
from scripts.attacks.stage import Row, stage
from tests.integration.forked import Served
from tests.integration.processes import environment, hdpvfl

LIAR = "passive-2"


def _rewritten(path: Path, change: Callable[[Entry], Entry | None]) -> None:
    """Write a ledger's entries again, changed and correctly linked; None leaves one out."""
    with closing(sqlite3.connect(path)) as file, file:
        rows = file.execute("SELECT * FROM entry ORDER BY sequence").fetchall()
        file.execute("DELETE FROM entry")
        head = EMPTY_LEDGER
        for *_, release_id, body, opening in rows:
            if (entry := change(decode(body))) is None:
                continue
            written = encode(entry)
            head = extend(head, written, opening)
            values = (head.sequence, head.digest, release_id, written, opening)
            file.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", values)


def _spends_dropped(entry: Entry) -> Entry | None:
    return None if isinstance(entry, ReleaseBooked) else entry


def _cap_changed(entry: Entry) -> Entry:
    if not isinstance(entry, CapFixed):
        return entry
    cap = type(entry.cap)(epsilon=entry.cap.epsilon * 0.999, delta=entry.cap.delta)
    return CapFixed(**{**dict(entry), "cap": cap})


def _cut(path: Path) -> None:
    """Drop the last third of a journal."""
    with closing(sqlite3.connect(path)) as file, file:
        (count,) = file.execute("SELECT count(*) FROM records").fetchone()
        file.execute("DELETE FROM records WHERE idx >= ?", (2 * count // 3,))


CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "spends dropped": ("state", lambda path: _rewritten(path, _spends_dropped)),
    "cap changed": ("state", lambda path: _rewritten(path, _cap_changed)),
    "journal cut": ("run", _cut),
}


def tampered_files(folder: Path) -> Row:
    """Change ledger or journal after the run; ask `hdpvfl audit` and the independent verifier."""
    told: dict[str, tuple[int, int]] = {}
    with stage(folder, guarantee="sound", epochs=2) as on:
        on.started.fresh = False
        on.start()
        codes = on.wait(on.started.names)
        if set(codes.values()) != {0}:
            raise RuntimeError(f"the run did not complete: {codes}")
        told["nothing changed"] = _verdicts(on.run, on.started.state)
        for name, (where, change) in CHANGES.items():
            copy = folder / "copies" / name
            run = shutil.copytree(on.run, copy / "runs" / on.run.name)
            state = shutil.copytree(on.started.state, copy / "state")
            file = "ledger.db" if where == "state" else "journal.db"
            change((state if where == "state" else run) / LIAR / file)
            told[name] = _verdicts(run, state)
    same = all(one == other for one, other in told.values())
    held = same and all(bool(one) == (name in CHANGES) for name, (one, _) in told.items())
    said = ", ".join(f"{name}: {one} and {other}" for name, (one, other) in told.items())
    what = f"exit codes of hdpvfl audit and verify_journal: {said}"
    cost = "none: the run is over" if held else json.dumps(told)
    name = "changes its ledger or journal after the run"
    return Row(name, LIAR, "both verifiers", what, cost, held)


def _verdicts(run: Path, state: Path) -> tuple[int, int]:
    """Exit codes of both verifiers."""
    first = hdpvfl("audit", run, "--ledgers", state, cwd=run)
    second = Served(
        partial(verify_journal.main, [str(run), str(state)]),
        out=state.with_name("second verifier"),
        cwd=run,
        environment=environment(),
    )
    return first.returncode, second.wait()


ATTACKS: dict[str, Callable[[Path], Row]] = {"tampered_files": tampered_files}
