"""Line charts as SVG: no script, no network.

It owns scales and axes; chart.svg.j2 owns the drawing. It knows nothing about privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hdpvfl_mq.app.report.templates import rendered

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 44
TICKS, DOTS_MAX = 5, 40
Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Maps numbers to positions in the picture."""

    x_high: float
    y_low: float
    y_high: float

    def at(self, x: float, y: float) -> Point:
        """The position of a point; the x axis begins at 0."""
        up = (y - self.y_low) / (self.y_high - self.y_low)
        return (
            round(LEFT + x / self.x_high * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1),
        )


@dataclass(frozen=True)
class Mark:
    """A label at a position; a mark without a label is a line from there to the right."""

    name: str
    x: float
    y: float
    text: str | None = None
    x_end: float = WIDTH - RIGHT


@dataclass(frozen=True)
class Chart:
    """The values that chart.svg.j2 draws."""

    title: str
    marks: list[Mark]
    places: list[Point]
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def dots(self) -> list[Point]:
        """A dot at every point, unless there are too many."""
        return self.places if len(self.places) <= DOTS_MAX else []


def line_chart(
    points: Sequence[Point],
    *,
    x_title: str,
    y_title: str,
    limit: tuple[float, str] | None = None,
    from_zero: bool = True,
) -> Markup:
    """One line over its axes, with a dashed line for a limit."""
    ys = [y for _, y in points] + ([] if limit is None else [limit[0]])
    low = 0.0 if from_zero else min(ys)
    high = max(ys) if max(ys) > low else low + 1.0
    scale = Scale(max(1.0, *(x for x, _ in points)), low, high + 0.06 * (high - low))
    marks = _axes(scale, x_title, y_title)
    if limit is not None:
        _, y = scale.at(0.0, limit[0])
        marks += [Mark("limit", LEFT, y), Mark("limit", LEFT + 6, y - 5, limit[1])]
    places = [scale.at(x, y) for x, y in points]
    return rendered("chart.svg.j2", chart=Chart(f"{y_title} by {x_title}", marks, places))


def _axes(scale: Scale, x_title: str, y_title: str) -> list[Mark]:
    marks = []
    for value in ticks(scale.y_low, scale.y_high):
        _, y = scale.at(0.0, value)
        marks += [Mark("grid", LEFT, y), Mark("y", LEFT - 8, y + 4, f"{value:g}")]
    for value in ticks(0.0, scale.x_high):
        x, y = scale.at(value, scale.y_low)
        marks.append(Mark("x", x, y + 18, f"{value:g}"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*marks, Mark("x", middle, HEIGHT - 6, x_title), Mark("title", LEFT, 14, y_title)]


def ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two bounds."""
    raw = (high - low) / TICKS
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1.0, 2.0, 5.0, 10.0) if m * magnitude >= raw)
    first = math.ceil(low / step)
    return [round(n * step, 12) for n in range(first, math.floor(high / step) + 1)]
