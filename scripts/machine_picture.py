"""A state diagram as SVG: phases in a column, moves to the next phase between, others beside.

It owns the layout; it knows no role. Moves that skip phases run in lanes at the right, one lane for
each target phase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

BOX_WIDTH, BOX_HEIGHT, STEP = 120, 44, 104
LEFT, TOP = 24, 64
LETTER = 7  # approximate width of a letter
EXIT = 16  # distance between two exits of a phase
STYLE = (
    "text{font:13px sans-serif;fill:#1f2328}.label{font-size:12px;fill:#57606a}"
    ".phase{fill:#eef4ff;stroke:#3b6fc4}.move{fill:none;stroke:#57606a}"
)
Changes = Mapping[tuple[str, str], Sequence[str]]


def picture(title: str, phases: Sequence[str], changes: Changes) -> str:
    """The diagram as the text of an SVG file."""
    lanes = _lanes(phases, changes)
    width = max([LEFT + BOX_WIDTH + 200, *lanes.values()]) + 24
    height = TOP + (len(phases) - 1) * STEP + BOX_HEIGHT + 24
    shapes = [shape for phase in phases for shape in _phase(phase, _top(phases, phase))]
    exits: Counter[str] = Counter()
    for (before, after), names in changes.items():
        if (before, after) in pairwise(phases):
            shapes += _down(_top(phases, before), names)
        else:
            out = _top(phases, before) + 6 + EXIT * exits[before]
            shapes += _past(out, _top(phases, after), lanes[after], names)
            exits[before] += 1
    body = "\n".join(f"  {shape}" for shape in shapes)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
     viewBox="0 0 {width} {height}" role="img">
  <title>Phases of {escape(title)}</title>
  <style>{STYLE}</style>
  <rect width="{width}" height="{height}" fill="#ffffff"/>
  <marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"
          orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#57606a"/></marker>
  <text x="{LEFT}" y="32" font-weight="bold">Phases of {escape(title)}</text>
{body}
</svg>
"""


def _top(phases: Sequence[str], phase: str) -> int:
    return TOP + list(phases).index(phase) * STEP


def _lanes(phases: Sequence[str], changes: Changes) -> dict[str, int]:
    """The x position, beside all labels, of the lane to each phase not reached from above."""
    past = [pair for pair in changes if pair not in pairwise(phases)]
    longest = max((len(", ".join(changes[pair])) for pair in past), default=0)
    first = LEFT + BOX_WIDTH + 24 + longest * LETTER
    ends = [phase for phase in phases if phase in {after for _, after in past}]
    return {phase: first + 24 * number for number, phase in enumerate(ends)}


def _phase(name: str, top: int) -> Iterator[str]:
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
    yield f'<rect class="phase" x="{LEFT}" y="{top}" {size} rx="8"/>'
    middle = LEFT + BOX_WIDTH // 2
    yield f'<text x="{middle}" y="{top + 27}" text-anchor="middle">{escape(name)}</text>'


def _down(top: int, names: Sequence[str]) -> Iterator[str]:
    """Draw a move to the phase below."""
    x, first, last = LEFT + BOX_WIDTH // 2, top + BOX_HEIGHT, top + STEP
    yield f'<path class="move" d="M{x} {first} V{last}" marker-end="url(#tip)"/>'
    yield _label(x + 8, (first + last) // 2 + 4, names)


def _past(out: int, end: int, lane: int, names: Sequence[str]) -> Iterator[str]:
    """Draw a move out at the right, along the lane, into the right of the phase with top `end`."""
    x = LEFT + BOX_WIDTH
    path = f"M{x} {out} H{lane} V{end + BOX_HEIGHT - 6} H{x}"
    yield f'<path class="move" d="{path}" marker-end="url(#tip)"/>'
    yield _label(x + 8, out - 4, names)


def _label(x: int, y: int, names: Sequence[str]) -> str:
    return f'<text class="label" x="{x}" y="{y}">{escape(", ".join(names))}</text>'
