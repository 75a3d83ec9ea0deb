"""How far one replaced row moves each release of the private model.

It owns the four moves and their grids; it knows no noise and no data. Rows have norm at most 1, the
model learns from n rows, and z is the received vector, centred and then clipped to +- C.

- labels: one number in [-1, 1] moves by at most 2. Both ends lie on the grid, so rounding keeps
  every number within them.
- scores: given the weights, the replaced row's own number in [-B, B] moves by at most 2 B; B lies
  on the grid.
- X'z / n: the sum loses x z and gains x~ z, |x z - x~ z| <= 2 C. Rounding d numbers to a grid moves
  each by at most half a step in either run: together sqrt(d) steps.
- X'X / n: the Frobenius norm of x x' - x~ x~' is sqrt(|x|^4 + |x~|^4 - 2 (x'x~)^2) <= sqrt(2), and
  rounding d^2 entries adds d steps.
"""

from __future__ import annotations

import math

# The grid may add this share to the move of a statistic.
_GRID_SHARE = 0.01
_UP = 1.0 + 2.0**-48


def moments_move(rows: int, clip: float) -> float:
    """2 C / n, before rounding to the grid."""
    return 2.0 * clip / rows


def gram_move(rows: int) -> float:
    """sqrt(2) / n, before rounding to the grid."""
    return math.sqrt(2.0) / rows


def on_grid(move: float, steps: float) -> tuple[float, int]:
    """Square of the move plus `steps` grid steps of rounding, and the grid's exponent.

    The grid is the coarsest that adds at most 1 % to the move.
    """
    exponent = math.floor(math.log2(move * _GRID_SHARE / steps))
    return ((move + steps * 2.0**exponent) * _UP) ** 2, exponent
