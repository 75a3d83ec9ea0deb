"""A member that sends envelopes of the past again: of its earlier process, or of an earlier run.

It owns these attacks. The defence holds if the run completes with every release booked once, what
came again changed nothing, and both verifiers find nothing wrong.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.reader import read_evidence
from scripts import verify_journal
from scripts.attacks.lies_of_the_past import JOURNAL
from scripts.attacks.put_back import VICTIM, booked, kill, sent, until_round
from scripts.attacks.stage import Row, stage
from scripts.attacks.standing import standing

CONTRADICTION = 5


def earlier_epoch(folder: Path) -> Row:
    """Kill a party in a round; its next process sends again all that the first one sent."""
    with stage(folder, guarantee="sound", epochs=60) as on:
        on.start()
        until_round(on, 3)
        kill(on)
        copy = folder / "before.db"
        for file in (on.run / VICTIM).glob("journal.db*"):
            copy.with_name(file.name.replace("journal", "before")).write_bytes(file.read_bytes())
        os.environ[JOURNAL] = str(copy)
        try:
            on.start_liar(VICTIM, "sent_again")
        finally:
            os.environ.pop(JOURNAL)
        codes = on.wait(on.started.names)
        paid, left = booked(on), sent(on)
        honest = tuple(name for name in on.started.names if name != VICTIM)
        verdicts = on.verdicts(honest)
        what, refused = _told(on.refusals("active"))
    held = set(codes.values()) == {0} and left <= paid and refused
    held &= all(one == other != CONTRADICTION for one, other in verdicts)
    cost = "none: the run completes" if held else f"exit codes {codes}, verifiers {verdicts}"
    name = "sends all envelopes of its process before a restart again"
    return Row(name, VICTIM, "active", what, cost, held)


def earlier_run(folder: Path) -> Row:
    """In the second run of a federation a party sends all that it sent in the first one."""
    with standing(folder) as on:
        on.start()
        first = on.trains("one")
        on.stop("passive-1")
        runs = on.demo.folder.parent
        os.environ[JOURNAL] = str(runs / "one" / "passive-1" / "journal.db")
        try:
            on.start("passive-1", lie="sent_again")
        finally:
            os.environ.pop(JOURNAL)
        second = on.trains("two")
        alive = all(on.is_alive(name) for name in on.children)
        what, refused = _told(on.refusals("active", "two"))
        found = [_verdicts(runs / name, folder / "shown") for name in ("one", "two")]
    held = first and second and alive and refused
    held &= found[0] == (0, 0) and found[1][0] == found[1][1] != CONTRADICTION
    cost = "none: the run completes" if held else f"{first} {second} {alive}, verifiers {found}"
    name = "sends all envelopes of an earlier run again in the next one"
    return Row(name, "passive-1", "active", what, cost, held)


def _told(refusals: list[str]) -> tuple[str, bool]:
    """What a party says of envelopes of the past, and whether it refused one that was no copy."""
    copies = [text for text in refusals if text.startswith("a copy of")]
    others = [text for text in refusals if text not in copies]
    return f"{len(copies)} copies; {others[0] if others else 'nothing else'}"[:150], bool(others)


def _verdicts(run: Path, folder: Path) -> tuple[int, int]:
    """The exit codes of both verifiers for the active party's journal alone."""
    shown = folder / run.name
    shutil.copytree(run / "active", shown / "active")
    found = verify_journal.verify(shown)
    second = 0 if not found else 5 if min(found) <= 5 else 1
    return exit_code(audit(read_evidence(shown))), second


ATTACKS: dict[str, Callable[[Path], Row]] = {
    each.__name__: each for each in (earlier_epoch, earlier_run)
}
