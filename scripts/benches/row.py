"""One row of the benchmark's table. It owns the format and measures nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Our figure, the figure it is compared with in the same run, and their ratio."""

    what: str
    ours: str
    against: str = ""
    wall: str = ""  # ratio of wall times, ours to theirs
    cpu: str = ""  # ratio of processor times
    key: str = ""  # names the row in a recorded run
    value: float | None = None  # the figure that a target limits
    cpu_value: float | None = None  # the same for processor time


def times(ours: float, theirs: float) -> str:
    """A ratio as text: how many times theirs, or which fraction of it."""
    ratio = ours / max(theirs, 1e-12)
    return f"{ratio:.3g} x" if ratio >= 1 else f"1/{1 / max(ratio, 1e-12):.3g}"
