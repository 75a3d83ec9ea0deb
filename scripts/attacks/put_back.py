"""A member whose files change while a run goes on: an older ledger or journal, a full disk.

It owns these changes and the judgement: the run completes and every release that was sent is
booked, or it ends for all within seconds and no release leaves twice.
"""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hdpvfl_mq.audit.reader import read_transcript
from schemas.messages import Releasing
from schemas.privacy import ReleaseBooked
from scripts.attacks.stage import WAIT_S, Row, Stage, stage

VICTIM = "passive-2"
SETTINGS: dict[str, Any] = {"guarantee": "sound", "epochs": 60}
DISK_BYTES = 64 * 1024
STATUS_S = 3.0  # no status is older
SECONDS = 60.0  # most time until all parties know, on a busy machine


def older_ledger(folder: Path) -> Row:
    """Kill a party in a round, and start it again with the ledger of an earlier round."""
    with stage(folder, **SETTINGS) as on:
        on.started.fresh = False  # nobody measures memory here
        ledger, copy = on.started.state / VICTIM, folder / "copy"
        on.start()
        until_round(on, 3)
        kill(on)
        shutil.copytree(ledger, copy)
        on.started.start(VICTIM)
        until_round(on, 20)
        kill(on)
        shutil.rmtree(ledger)
        shutil.move(copy, ledger)
        on.started.start(VICTIM)
        codes = on.wait(on.started.names)
        paid, left = booked(on), sent(on)
    held = set(codes.values()) == {0} and left <= paid
    what = f"{len(left)} releases sent, {len(paid)} booked: replaying the journal books again"
    cost = "none: the run completes" if held else f"exit codes {codes}"
    return Row("its ledger is put back in mid-run", VICTIM, VICTIM, what, cost, held)


def deleted_journal(folder: Path) -> Row:
    """Delete a party's journal between two of its processes; it has the secret it had."""
    return _other_journal(folder, "its journal is deleted, its secret kept", lambda own, copy: None)


def older_journal(folder: Path) -> Row:
    """Put back the journal that a party had some rounds and one start earlier."""

    def put_back(own: Path, copy: Path) -> None:
        for file in copy.glob("journal.db*"):
            shutil.copy(file, own)

    return _other_journal(folder, "an older copy of its journal is put back", put_back)


def _other_journal(folder: Path, name: str, put_back: Callable[[Path, Path], None]) -> Row:
    """Change a party's journal after its second process; all must end, and within seconds."""
    with stage(folder, **{**SETTINGS, "epochs": 2000}) as on:  # it must not end by itself
        on.started.fresh = False
        own, copy = on.run / VICTIM, folder / "copy"
        on.start()
        until_round(on, 3)
        kill(on)
        shutil.copytree(own, copy)
        time.sleep(STATUS_S)  # the run waits for the victim: then the status is that of now
        reached = on.rounds()
        on.started.start(VICTIM)
        until_round(on, reached + 2)
        kill(on)
        before = sent(on)
        for file in own.glob("journal.db*"):
            file.unlink()
        put_back(own, copy)
        kept = sent(on)
        if not kept < before:
            raise RuntimeError("the journal that is put back lacks nothing")
        on.started.start(VICTIM)
        began = time.monotonic()
        on.wait(tuple(on.started.demo.parties))
        took_s = time.monotonic() - began
        codes = on.wait(on.started.names)
        again = (sent(on) - kept) & before
        models = [name for name in on.started.demo.parties if on.weights(name) is not None]
        said = {name: on.started.said(name).strip().splitlines()[-1:] for name in codes}
    held = all(code not in (0, None) for code in codes.values()) and took_s < SECONDS
    held = held and not again and not models
    others = ", ".join(f"{name} {codes[name]}" for name in codes if name != VICTIM)
    cost = f"the run: exit codes {others}, after {took_s:.0f} s"
    what = "".join(said["active"]).rpartition("toml: ")[2][:150]
    return Row(name, VICTIM, "active", what, cost, held)


def full_disk(folder: Path) -> Row:
    """No file of a party may grow above a limit, as on a full disk; then there is room again."""
    with stage(folder, **SETTINGS) as on:
        on.started.fresh = False  # a limit is set first thing in a forked process
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
        on.started.before[VICTIM] = limit
        on.start()
        code = on.wait((VICTIM,))[VICTIM]
        said = on.started.said(VICTIM)
        del on.started.before[VICTIM]
        on.started.start(VICTIM)
        codes = on.wait(on.started.names)
        paid, left = booked(on), sent(on)
    held = code == 2 and "Traceback" not in said
    held = held and set(codes.values()) == {0} and left <= paid
    what = f"exit code {code}: {said.strip().splitlines()[0].rpartition('toml: ')[2][:110]}"
    cost = "none: the run completes when there is room" if held else f"exit codes {codes}"
    return Row("its disk is full in mid-run", VICTIM, VICTIM, what, cost, held)


def until_round(on: Stage, number: int) -> None:
    """Wait for a round."""
    end = time.monotonic() + WAIT_S
    while on.rounds() < number:
        if time.monotonic() > end:
            raise RuntimeError(f"round {number} did not come")
        time.sleep(0.02)


def kill(on: Stage) -> None:
    """Kill the victim's process."""
    child = on.started.children[VICTIM]
    child.send_signal(signal.SIGKILL)
    child.wait()


def booked(on: Stage) -> set[str]:
    """Releases in the victim's ledger."""
    rows = on.started.entries(VICTIM)
    entries = (entry for row in rows for entry in row)
    return {entry.event.release_id for entry in entries if isinstance(entry, ReleaseBooked)}


def sent(on: Stage) -> set[str]:
    """Releases in the victim's journal."""
    path = on.run / VICTIM / "journal.db"
    if not path.exists():
        return set()
    messages = (envelope.message for envelope in read_transcript(path, VICTIM).sent())
    return {each.release.release_id for each in messages if isinstance(each, Releasing)}


ATTACKS: dict[str, Callable[[Path], Row]] = {
    "older_ledger": older_ledger,
    "deleted_journal": deleted_journal,
    "older_journal": older_journal,
    "full_disk": full_disk,
}
