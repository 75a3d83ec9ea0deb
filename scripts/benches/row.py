"""One line of the benchmark's table. Owns the shape; measures nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure of ours, what it is measured against in the same run, and their ratio."""

    what: str
    ours: str
    against: str = ""
    wall: str = ""  # ratio of wall times, ours to theirs
    cpu: str = ""  # ratio of processor times


def times(ours: float, theirs: float) -> str:
    """A ratio for people: how many times theirs, or which part of it."""
    ratio = ours / max(theirs, 1e-12)
    return f"{ratio:.3g} x" if ratio >= 1 else f"1/{1 / max(ratio, 1e-12):.3g}"
