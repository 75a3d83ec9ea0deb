"""Every attack we know on real processes, as one table: `make attack`, `--write docs/attacks.md`.

It owns the list and the table; attacks are in scripts/attacks. It exits 1 if one got through.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from scripts import sources
from scripts.attacks import federations, load, members, put_back, replays, tampered
from scripts.attacks.stage import Row

ATTACKS: dict[str, Callable[[Path], Row]] = {
    **members.ATTACKS,
    **federations.ATTACKS,
    **tampered.ATTACKS,
    **put_back.ATTACKS,
    **replays.ATTACKS,
    **load.ATTACKS,
}
INTRODUCTION = """# Attacks on a running federation

Made by `make attack WRITE=1`: each line is a program against real processes with the attacker's
real keys (`scripts/attacks/`). The broker, the active party and two passive parties run on one
machine; the attacker is one of them, or a stranger. Times and memory are of that machine. Memory is
the most that an honest process took above its peak in a run without an attacker; up to 16 MiB are
not shown. A run counts as over when the last honest process has left. The broker of a single run
stays up to 60 s longer for the last acknowledgements of a party that says nothing; it does not wait
for one that has signed something false. "Calm" is the time of a run without an attacker in the same
call, from the start of the processes to the end of the last one.

"""


def run(names: list[str]) -> list[Row]:
    """Run attacks one after the other."""
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="hdpvfl-attack-") as folder:
            try:
                row = ATTACKS[name](Path(folder))
            except Exception as broken:  # noqa: BLE001 - one broken attack must not hide the others
                row = Row(
                    name, "?", "nobody", f"{type(broken).__name__}: {broken}"[:200], "?", False
                )
            row = replace(row, by_what=row.by_what.replace(f"{folder}/", ""))
        rows.append(row)
        print(f"{'held ' if row.held else 'BROKE'} {' | '.join(_cells(row))}", flush=True)
    return rows


def _cells(row: Row) -> tuple[str, ...]:
    return (row.attack, row.by, row.noticed_by, row.by_what, row.cost)


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| attack | by | noticed by | by what | cost to the others |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in _cells(row))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--write", type=Path, help="write the page with the table here")
    options = parser.parse_args()
    rows = run(options.names or list(ATTACKS))
    broke = [row.attack for row in rows if not row.held]
    summary = f"{len(rows) - len(broke)} of {len(rows)} attacks held"
    if options.write:
        told = f"In one call on commit {sources.commit()}, {summary}" + "".join(
            f"; not: {each}" for each in broke
        )
        options.write.write_text(f"{INTRODUCTION}{told}.\n\n{table(rows)}")
    print(summary + "".join(f"\n  {each}" for each in broke))
    return 1 if broke else 0


if __name__ == "__main__":
    sys.exit(main())
