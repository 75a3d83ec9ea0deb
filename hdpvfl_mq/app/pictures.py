"""Line charts as SVG text: no library, no script, no network.

It owns scales, axes and colours; it knows no privacy.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 44
TICKS = 5
Point = tuple[float, float]


def line_chart(
    points: Sequence[Point],
    *,
    x_title: str,
    y_title: str,
    limit: tuple[float, str] | None = None,
    from_zero: bool = True,
) -> str:
    """One line over its axes, with a dashed line for a limit."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if limit is not None:
        ys.append(limit[0])
    x_low, x_high = 0.0, max(1.0, *xs)
    y_low = 0.0 if from_zero else min(ys)
    y_high = max(ys) if max(ys) > y_low else y_low + 1.0
    y_high += 0.06 * (y_high - y_low)

    def at(x: float, y: float) -> Point:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_low) / (y_high - y_low)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(y_title)} by {html.escape(x_title)}">'
    ]
    for value in ticks(y_low, y_high):
        x, y = at(x_low, value)
        parts.append(
            f'<line class="grid" x1="{x}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text class="y" x="{x - 8}" y="{y + 4:.1f}">{value:g}</text>')
    for value in ticks(x_low, x_high):
        x, y = at(value, y_low)
        parts.append(f'<text class="x" x="{x:.1f}" y="{y + 18:.1f}">{value:g}</text>')
    if limit is not None:
        _, y = at(x_low, limit[0])
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="limit" x="{LEFT + 6}" y="{y - 5:.1f}">{html.escape(limit[1])}</text>'
        )
    path = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in points)
    parts.append(f'<polyline class="line" points="{path}"/>')
    if len(points) <= 40:
        parts += ['<circle cx="{:.1f}" cy="{:.1f}" r="3"/>'.format(*at(x, y)) for x, y in points]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="x" x="{middle}" y="{HEIGHT - 6}">{html.escape(x_title)}</text>')
    parts.append(
        f'<text class="title" x="{LEFT}" y="{TOP - 16}">{html.escape(y_title)}</text></svg>'
    )
    return "".join(parts)


def ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two bounds."""
    raw = (high - low) / TICKS
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1.0, 2.0, 5.0, 10.0) if m * magnitude >= raw)
    first = math.ceil(low / step)
    return [round(n * step, 12) for n in range(first, math.floor(high / step) + 1)]
