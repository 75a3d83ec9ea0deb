"""The picture of a bench: ratios to the floor, growth, and peers, one panel each.

It owns the drawing; a panel without measured rows stays out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.benches.row import Row

Points = list[tuple[float, Row]]
Draw = Callable[[Any, Points], None]


def draw(rows: Sequence[Row], path: Path) -> None:
    """All panels with something to show, in one file; no file without any."""
    panels = [
        (title, how, points) for title, prefix, how in PANELS if (points := _points(rows, prefix))
    ]
    if not panels:
        return
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load, seldom drawn

    figure = Figure(figsize=(11, 3.2 * -(-len(panels) // 2)))
    axes = figure.subplots(-(-len(panels) // 2), 2, squeeze=False).ravel()
    for panel in axes[len(panels) :]:
        panel.set_visible(False)
    for panel, (title, how, points) in zip(axes, panels, strict=False):
        panel.set_title(title, fontsize="medium")
        how(panel, points)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _points(rows: Sequence[Row], prefix: str) -> Points:
    found = [row for row in rows if row.key.startswith(prefix)]
    ends = [row.key.rpartition(".")[2] for row in found]
    return sorted(
        ((float(end), row) for end, row in zip(ends, found, strict=True) if end.isdigit()),
        key=lambda point: point[0],
    )


def _ratios(panel: Any, points: Points) -> None:
    sizes = [size for size, _ in points]
    panel.plot(sizes, [row.value or 0.0 for _, row in points], "o-", label="wall time")
    panel.plot(sizes, [row.cpu_value or 0.0 for _, row in points], "s--", label="processor time")
    panel.axhline(1.0, color="grey", linewidth=1)
    panel.set_xscale("log", base=2)
    panel.set(xlabel="partners", ylabel="ratio", ylim=(0, None))
    panel.legend()


def _seconds(panel: Any, points: Points) -> None:
    sizes = [size for size, _ in points]
    panel.plot(sizes, [row.value or 0.0 for _, row in points], "o-", label="wall time")
    panel.plot(sizes, [row.cpu_value or 0.0 for _, row in points], "s--", label="processor time")
    panel.set(xscale="log", yscale="log", ylabel="seconds")
    panel.legend()


def _each(panel: Any, points: Points) -> None:
    sizes = [size for size, _ in points]
    panel.plot(sizes, [(row.cpu_value or 0.0) / size for size, row in points], "s-")
    panel.set_xscale("log", base=2)
    panel.set(xlabel="partners", ylabel="processor seconds each", ylim=(0, None))


def _bars(panel: Any, points: Points) -> None:
    names = [row.key.partition(".")[2] for _, row in points]
    panel.barh(names, [row.value or 0.0 for _, row in points])
    panel.axvline(1.0, color="grey", linewidth=1)
    panel.set(xscale="log", xlabel="ours / theirs, wall time")


# title, how the keys begin, how they are drawn
PANELS: tuple[tuple[str, str, Draw], ...] = (
    ("a round of descent against its floor", "round.", _ratios),
    ("guarantee sound against none", "sound.", _ratios),
    ("files to models against rows (20 columns, 1 partner)", "growth.rows.", _seconds),
    ("files to models against columns (10,000 rows, 1 partner)", "growth.columns.", _seconds),
    ("a whole run of many partners in 8 processes", "many.hosted.", _each),
    ("a round against exchanges of the same bytes", "exchange.", _bars),
    ("entity resolution against SPU", "resolution.SPU", _bars),
    ("entity resolution against openmined-psi", "resolution.openmined", _bars),
)
