"""Peeling a sparse system.

It owns the order in which equations are solved; it does not know their values. Each equation names
three unknowns. If only one open equation names an unknown, that unknown can be solved last, so the
equation is set aside. The equations that can never be set aside are the core, which is tiny if
there are enough unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.intp]


@dataclass(frozen=True)
class Peeling:
    """Layers (equations, the unknown each one solves) as found, and the equations left over."""

    layers: list[tuple[Positions, Positions]]
    core: Positions


def peel(unknowns: Positions, size: int) -> Peeling:
    """Peel equations given as rows of three unknowns below `size`."""
    count = len(unknowns)
    degree = np.bincount(unknowns.ravel(), minlength=size)
    numbers = np.repeat(np.arange(count, dtype=np.float64), 3)  # sums stay exact below 2^53
    numbered = np.bincount(unknowns.ravel(), weights=numbers, minlength=size).astype(np.int64)
    is_open = np.ones(count, dtype=bool)
    marker = np.empty(count, dtype=np.intp)
    layers = []
    frontier = np.flatnonzero(degree == 1)
    while frontier.size:
        equations = numbered[frontier]
        turn = np.arange(len(frontier))
        marker[equations] = turn
        first = marker[equations] == turn  # each equation once, by one unknown that only it names
        equations, solved = equations[first], frontier[first]
        layers.append((equations, solved))
        is_open[equations] = False
        touched = unknowns[equations].ravel()
        np.subtract.at(degree, touched, 1)
        np.subtract.at(numbered, touched, np.repeat(equations, 3))
        frontier = touched[degree[touched] == 1]
    return Peeling(layers, np.flatnonzero(is_open))
