"""Draw the tables of moves as state diagrams: `python -m scripts.draw_machines`.

It owns docs/machines.md between its marks and the pictures beside it; the roles own the tables.
`tests/contracts/test_machines.py` fails when a file differs from what this script would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from broker import agreed_runs, coordinator
from broker import phases as seen
from broker import run_phases as agreed
from hdpvfl_mq.machine import Moves, find_move, stay
from parties import active, passive, phases, proposals, unable
from parties import run_phases as known
from schemas.ids import RoleName
from scripts.machine_picture import picture

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURES = DOCS / "machines.md", DOCS / "machines"
BEGIN = "<!-- drawn by scripts/draw_machines.py from the tables of moves: do not edit below -->"
END = "<!-- end of the drawing -->"


@dataclass(frozen=True)
class Machine:
    """A table of moves, the phases it may begin in and those it may end in."""

    name: str
    role: RoleName
    source: str  # where the table is
    moves: Moves
    starts: tuple[type, ...]
    ends: tuple[type, ...]

    @cached_property
    def phases(self) -> tuple[type, ...]:
        """Every phase a state can be in, in order of definition."""
        named = {*self.starts, *(phase for phase, _ in self.moves)}
        named |= {phase for move in self.moves.values() for phase in move.to}
        bases = {base for phase in named for base in phase.__mro__[1:]}
        return tuple(sorted(named - bases, key=_place))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Every input that at least one phase accepts."""
        return tuple(dict.fromkeys(name for _, name in self.moves))

    @property
    def picture(self) -> str:
        """The name of its picture: that of the module with the table."""
        return Path(self.source).stem


def _place(phase: type) -> int:
    module = list(vars(sys.modules[phase.__module__]))
    return module.index(phase.__name__)


MACHINES = (
    Machine(
        "the active party",
        "active",
        "parties/active.py",
        active.MOVES,
        (phases.Starting,),
        (phases.Closed,),
    ),
    Machine(
        "a passive party",
        "passive",
        "parties/passive.py",
        passive.MOVES,
        (phases.Starting,),
        (phases.Closed,),
    ),
    Machine(
        "the coordinator",
        "coordinator",
        "broker/coordinator.py",
        coordinator.MOVES,
        (seen.Gathering,),
        (seen.Closed,),
    ),
)
# It takes no part in its run.
UNABLE = Machine(
    "a party that cannot take part",
    "passive",
    "parties/unable.py",
    unable.MOVES,
    (unable.Telling,),
    (unable.Told,),
)
# A federation's roles have one phase each; each of their runs has its own.
RUNS = (
    Machine(
        "a run at the registrar",
        "coordinator",
        "broker/agreed_runs.py",
        agreed_runs.MOVES,
        (agreed.Proposed, agreed.Refused),
        (agreed.Refused, agreed.Over),
    ),
    Machine(
        "a run at a member",
        "active",
        "parties/proposals.py",
        proposals.MOVES,
        (known.Asked, known.Proposed),
        (known.Over,),
    ),
)
DRAWN = (*MACHINES, UNABLE, *RUNS)


def next_phases(machine: Machine, phase: type, name: str) -> tuple[type, ...] | None:
    """The phases an input may lead to from a phase; None if the phase refuses the input."""
    move = find_move(machine.moves, phase, name)
    return None if move is None else move.to or (phase,)


def reachable(machine: Machine) -> set[type]:
    """The phases that some sequence of inputs leads to."""
    found, waiting = {*machine.starts}, [*machine.starts]
    while waiting:
        phase = waiting.pop()
        for name in machine.inputs:
            new = set(next_phases(machine, phase, name) or ()) - found
            found |= new
            waiting += new
    return found


def changes(machine: Machine) -> dict[tuple[str, str], list[str]]:
    """(phase, next phase) -> the inputs that lead there."""
    found: dict[tuple[str, str], list[str]] = {}
    for phase in machine.phases:
        for name in machine.inputs:
            for after in next_phases(machine, phase, name) or ():
                if after is not phase:
                    found.setdefault((phase.__name__, after.__name__), []).append(name)
    return found


def mermaid(machine: Machine) -> str:
    """The moves that change the phase, as a state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {phase.__name__}" for phase in machine.starts]
    lines += [
        # In Mermaid a colon ends the name of a state, so a label cannot contain one.
        f"    {before} --> {after} : {', '.join(names).replace(':', ' ')}"
        for (before, after), names in changes(machine).items()
    ]
    return "\n".join([*lines, *(f"    {phase.__name__} --> [*]" for phase in machine.ends)])


def table(machine: Machine) -> str:
    """A table of every input x every phase."""
    names = [phase.__name__ for phase in machine.phases]
    lines = ["| input | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for name in machine.inputs:
        cells = (_cell(machine, phase, name) for phase in machine.phases)
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(machine: Machine, phase: type, name: str) -> str:
    move = find_move(machine.moves, phase, name)
    if move is None:
        return ""
    if move.handler is stay and not move.to:
        return "ignored"
    return " or ".join("stays" if to is phase else to.__name__ for to in move.to or (phase,))


def drawing() -> str:
    """The text between the marks of the page."""
    parts = []
    for machine in DRAWN:
        title = machine.name.removeprefix("the ").removeprefix("a ").capitalize()
        parts += [
            f"## {title}",
            f"The table is `MOVES` in `{machine.source}`"
            f" ([as a picture](machines/{machine.picture}.svg)).",
            f"```mermaid\n{mermaid(machine)}\n```",
            table(machine),
        ]
    return "\n\n".join(parts)


def files(page: str) -> Iterator[tuple[Path, str]]:
    """Every generated file and its text; text of `page` outside the marks is kept."""
    head, _, rest = page.partition(BEGIN)
    _, _, foot = rest.partition(END)
    yield PAGE, f"{head}{BEGIN}\n\n{drawing()}\n\n{END}{foot}"
    for machine in DRAWN:
        names = [phase.__name__ for phase in machine.phases]
        yield PICTURES / f"{machine.picture}.svg", picture(machine.name, names, changes(machine))


def main() -> int:
    """Write the files that have changed."""
    PICTURES.mkdir(exist_ok=True)
    for path, text in files(PAGE.read_text()):
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
