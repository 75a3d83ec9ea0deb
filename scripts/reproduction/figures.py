"""The figures of the page, one PNG each, from the tables alone.

It owns what is drawn; a figure whose table is missing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.reproduction import methods, timing
from scripts.reproduction.tables import Row, chosen, mean, spread, values

COLOURS = {
    methods.SOUND: "tab:blue",
    methods.PUBLISHED: "tab:red",
    methods.NON_PRIVATE: "tab:green",
    methods.NON_PRIVATE_PAPER: "tab:olive",
    methods.ALONE: "tab:gray",
    methods.CENTRAL: "black",
    timing.SOUND_DESCENT: "tab:cyan",
}
LINES = (methods.CENTRAL, methods.NON_PRIVATE, methods.NON_PRIVATE_PAPER, methods.ALONE)


def draw_all(found: dict[str, list[dict[str, Any]]], out: Path) -> list[str]:
    """Draw every figure whose table exists; returns their names."""
    made = []
    for delta in values(found["q1"], "delta"):
        for measure, text in (("accuracy", "accuracy"), ("auc", "AUC")):
            name = f"q1_{measure}_delta_{delta:g}.png"
            _q1(found["q1"], delta, (measure, text), out / name)
            made.append(name)
    if found["q2"]:
        _q2(found["q2"], out / "q2.png")
        made.append("q2.png")
    if found["q3"]:
        _q3(found["q3"], out / "q3.png")
        made.append("q3.png")
    if found["attacks"]:
        _attacks(found["attacks"], out / "attacks.png")
        made.append("attacks.png")
    return made


def _panels(columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load, seldom drawn

    figure = Figure(figsize=size)
    return figure, figure.subplots(1, columns, **options)


def _saved(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def _q1(q1: Sequence[Row], delta: float, measure: tuple[str, str], path: Path) -> None:
    datasets = [d for d in ("breast", "credit", "adult") if d in values(q1, "dataset")]
    figure, axes = _panels(len(datasets), (4.4 * len(datasets), 3.6), squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        rows = chosen(q1, dataset=dataset, split=range(10))
        for method in (methods.SOUND, methods.PUBLISHED):
            _curve(axis, chosen(rows, method=method, delta=delta), measure[0], method)
        for method in LINES:
            if lines := chosen(rows, method=method):
                axis.axhline(
                    mean(lines, measure[0]), color=COLOURS[method], lw=1, ls="--", label=method
                )
        axis.set(title=dataset, xlabel="epsilon", xscale="log")
    axes[0][0].set_ylabel(f"{measure[1]}, mean of the splits")
    axes[0][-1].legend(fontsize=6)
    _saved(figure, path)


def _curve(axis: Any, rows: Sequence[Row], measure: str, label: str, by: str = "epsilon") -> None:
    points = values(rows, by)
    centre = [mean(chosen(rows, **{by: p}), measure) for p in points]
    width = [spread(chosen(rows, **{by: p}), measure) for p in points]
    drawn = axis.plot(points, centre, marker="o", ms=3, color=COLOURS.get(label), label=label)
    low = [c - w for c, w in zip(centre, width, strict=True)]
    high = [c + w for c, w in zip(centre, width, strict=True)]
    axis.fill_between(points, low, high, color=drawn[0].get_color(), alpha=0.12)


def _q2(q2: Sequence[Row], path: Path) -> None:
    figure, axes = _panels(2, (9, 3.6), sharey=True)
    for epochs in values(chosen(q2, k=1.0), "epochs"):
        _curve(axes[0], chosen(q2, k=1.0, epochs=epochs), "accuracy", f"e = {epochs:g}, k = 1")
    for k in values(chosen(q2, epochs=10.0), "k"):
        _curve(axes[1], chosen(q2, k=k, epochs=10.0), "accuracy", f"e = 10, k = {k:g}")
    for axis in axes:
        axis.set(xscale="log", xlabel="epsilon", title="Breast, as published")
        if axis.lines:
            axis.legend(fontsize=7)
    axes[0].set_ylabel("accuracy, mean and sd")
    _saved(figure, path)


def _q3(q3: Sequence[Row], path: Path) -> None:
    figure, axes = _panels(2, (9, 3.6))
    for axis, part, by in ((axes[0], "epochs", "epochs"), (axes[1], "rows", "rows")):
        rows = chosen(q3, part=part)
        for method in dict.fromkeys(row["method"] for row in rows):
            _curve(axis, chosen(rows, method=method), "computing", method, by=by)
        axis.set(xlabel=by, ylim=(0, None))
    axes[0].set_ylabel("training: seconds of computing, both parties")
    axes[0].set_title("10,000 rows")
    axes[1].set_title("one epoch")
    axes[1].legend(fontsize=6)
    _saved(figure, path)


def _attacks(rows: Sequence[Row], path: Path) -> None:
    figure, axes = _panels(2, (9, 3.8), sharey=True)
    for axis, attack in zip(axes, ("labels", "features"), strict=True):
        cases = {
            f"{r['dataset']}, {'no noise' if r['epsilon'] == '' else _case(r)}": r
            for r in chosen(rows, attack=attack)
        }
        for place, case in enumerate(cases):
            row = cases[case]
            axis.plot(place, row["auc_bound"], "k_", ms=12)
            axis.errorbar(place, row["auc"], 2 * row["auc_error"], fmt="o", ms=4, color="tab:red")
            if row.get("auc_before") not in ("", None):
                axis.plot(place, row["auc_before"], "x", color="tab:gray")
        axis.set_xticks(range(len(cases)), list(cases), rotation=90, fontsize=6)
        axis.set_title(f"{attack}: attack (red), bound (bar), before (cross)", fontsize=8)
    axes[0].set_ylabel("AUC of the attacker")
    _saved(figure, path)


def _case(row: Row) -> str:
    return f"{'sound' if row['method'] == methods.SOUND else 'published'} {row['epsilon']:g}"
