"""Line charts as SVG text: no library, no script, no network.

It owns scales, axes and colours; it knows no privacy.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 44
TICKS, DOTS_MAX = 5, 40
Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """From numbers to places in the picture."""

    x_high: float
    y_low: float
    y_high: float

    def at(self, x: float, y: float) -> Point:
        """The place of a point; x begins at 0."""
        up = (y - self.y_low) / (self.y_high - self.y_low)
        return (
            round(LEFT + x / self.x_high * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1),
        )


def line_chart(
    points: Sequence[Point],
    *,
    x_title: str,
    y_title: str,
    limit: tuple[float, str] | None = None,
    from_zero: bool = True,
) -> str:
    """One line over its axes, with a dashed line for a limit."""
    ys = [y for _, y in points] + ([] if limit is None else [limit[0]])
    low = 0.0 if from_zero else min(ys)
    high = max(ys) if max(ys) > low else low + 1.0
    scale = Scale(max(1.0, *(x for x, _ in points)), low, high + 0.06 * (high - low))
    label = html.escape(f"{y_title} by {x_title}")
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">']
    parts += _axes(scale, html.escape(x_title), html.escape(y_title))
    if limit is not None:
        _, y = scale.at(0.0, limit[0])
        parts.append(_across("limit", y))
        parts.append(_text("limit", LEFT + 6, y - 5, html.escape(limit[1])))
    places = [scale.at(x, y) for x, y in points]
    path = " ".join(f"{x},{y}" for x, y in places)
    parts.append(f'<polyline class="line" points="{path}"/>')
    if len(places) <= DOTS_MAX:
        parts += [f'<circle cx="{x}" cy="{y}" r="3"/>' for x, y in places]
    return "".join((*parts, "</svg>"))


def _axes(scale: Scale, x_title: str, y_title: str) -> list[str]:
    parts = []
    for value in ticks(scale.y_low, scale.y_high):
        _, y = scale.at(0.0, value)
        parts += [_across("grid", y), _text("y", LEFT - 8, y + 4, f"{value:g}")]
    for value in ticks(0.0, scale.x_high):
        x, y = scale.at(value, scale.y_low)
        parts.append(_text("x", x, y + 18, f"{value:g}"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, _text("x", middle, HEIGHT - 6, x_title), _text("title", LEFT, 14, y_title)]


def _across(name: str, y: float) -> str:
    return f'<line class="{name}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'


def _text(name: str, x: float, y: float, text: str) -> str:
    return f'<text class="{name}" x="{x}" y="{y}">{text}</text>'


def ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two bounds."""
    raw = (high - low) / TICKS
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1.0, 2.0, 5.0, 10.0) if m * magnitude >= raw)
    first = math.ceil(low / step)
    return [round(n * step, 12) for n in range(first, math.floor(high / step) + 1)]
