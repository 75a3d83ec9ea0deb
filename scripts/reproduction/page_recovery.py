"""The page's text on the recovered gain: targets, medians, data sets, cells below alone.

It owns this text; every number comes from the rows it is given.
"""

# ruff: noqa: E501 - lines of prose
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from scripts.reproduction.grid import DELTA, DELTA_SMALL
from scripts.reproduction.recovery import BOUNDED, DISCLOSED, NOISED
from scripts.reproduction.tables import Row, chosen, markdown, values

# Targets for the median over the data sets at epsilon 1, by number of partners.
TARGETS = {
    (NOISED, DELTA): {1: 0.65, 5: 0.70, 10: 0.70},
    (NOISED, DELTA_SMALL): {1: 0.35, 5: 0.45, 10: 0.40},
    (BOUNDED, DELTA): dict.fromkeys((1, 5, 10), 0.75),
    (BOUNDED, DELTA_SMALL): dict.fromkeys((1, 5, 10), 0.75),
    (DISCLOSED, DELTA): dict.fromkeys((1, 5, 10), 0.75),
    (DISCLOSED, DELTA_SMALL): dict.fromkeys((1, 5, 10), 0.60),
}
BELOW = 0.003
# Its share is above 1: the fit without partners chooses its ridge by cross-validation, the reference
# has C = 1, and with 82 columns and 5 % of one class a stronger ridge gains more than partners do.
BEATEN = "lending"


def recovered(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    at_one = chosen(rows, part="epsilon 1")
    splits = len(values(at_one, "split"))
    partners = [int(p) for p in values(rows, "partners")]
    return "\n\n".join(
        [
            f"""## How much of the gain a private run recovers

The share (joint - alone) / (central - alone) of AUC on held-out rows, prediction included, through the roles (`VFLClassifier`'s
way: no network). alone is logistic regression on the active party's columns, *not row-scaled*; central is the same on these and
the partners' columns, whose rows partners scale. Passive columns are dealt to the partners in turn. {splits} splits, one draw of
noise each. The constants of the last fit were chosen on these data sets with other noise, so the figures are not those of new data. A cell is (mean gain) / (mean gain of central) and its standard error over the splits, the median is over data sets.""",
            markdown(("scores", "delta", *_heads(partners)), _medians(at_one)),
            *_without_beaten(at_one, partners),
            "By data set, with standard errors:",
            markdown(("scores", "delta", "partners", *values(rows, "dataset")), _by_data(at_one)),
            _below(rows),
        ]
    )


def _heads(partners: Sequence[int]) -> list[str]:
    return [f"{p} partner" if p == 1 else f"{p} partners" for p in partners]


def _without_beaten(rows: Sequence[Row], partners: Sequence[int]) -> list[str]:
    if BEATEN not in values(rows, "dataset"):
        return []
    others = [row for row in rows if row["dataset"] != BEATEN]
    if not others:
        return []
    return [
        f"""*{BEATEN}* is above 1, because the fit without partners chooses its ridge by cross-validation and the reference has C = 1: with 82 columns and
5 % of one class a stronger ridge gains more than partners do. Medians of the other data sets, against the same targets:""",
        markdown(("scores", "delta", *_heads(partners)), _medians(others)),
    ]


def gains(rows: Sequence[Row], measure: str, **where: object) -> list[tuple[float, float]]:
    """(joint - alone, central - alone) of every split that has this cell."""
    found = []
    for run in chosen(rows, **where):
        place = {name: run[name] for name in ("dataset", "split", "partners", "part")}
        alone, central = (chosen(rows, mode=m, **place)[0] for m in ("alone", "central"))
        found.append((run[measure] - alone[measure], central[measure] - alone[measure]))
    return found


def share(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean gain over mean gain of central, and its standard error (of the ratio, linearised)."""
    if not pairs:
        return math.nan, math.nan
    gain, most = np.array(pairs).T
    ratio = gain.mean() / most.mean()
    if len(pairs) < 2:
        return float(ratio), math.nan
    error = (gain - ratio * most).std(ddof=1) / math.sqrt(len(pairs)) / abs(most.mean())
    return float(ratio), float(error)


def _medians(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    lines = []
    for (mode, delta), asked in TARGETS.items():
        cells = []
        for partners, least in asked.items():
            where = {"mode": mode, "delta": delta, "partners": partners}
            shares = [
                share(gains(rows, "auc", dataset=d, **where))[0] for d in values(rows, "dataset")
            ]
            known = [one for one in shares if not math.isnan(one)]
            found = float(np.median(known)) if known else math.nan
            met = "met" if found >= least else "**not met**"
            cells.append(f"{found:.2f} / {least:.2f} {met}" if known else "not run")
        lines.append((mode, f"{delta:g}", *cells))
    return lines


def _by_data(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    lines = []
    for (mode, delta), asked in TARGETS.items():
        for partners in asked:
            where = {"mode": mode, "delta": delta, "partners": partners}
            cells = [share(gains(rows, "auc", dataset=d, **where)) for d in values(rows, "dataset")]
            texts = ["" if math.isnan(r) else f"{r:.2f} ({e:.2f})" for r, e in cells]
            lines.append((mode, f"{delta:g}", str(partners), *texts))
    return lines


def _below(rows: Sequence[Row]) -> str:
    """Cells whose mean is below the active party alone by more than the tolerance for chance."""
    lines, count = [], 0
    runs = [row for row in rows if row["mode"] not in ("alone", "central")]
    keys = sorted(
        {tuple(r[k] for k in ("dataset", "partners", "mode", "delta", "epsilon")) for r in runs}
    )
    for key in keys:
        where = dict(zip(("dataset", "partners", "mode", "delta", "epsilon"), key, strict=True))
        for measure in ("accuracy", "auc"):
            pairs = gains(rows, measure, **where)
            gain = np.array([pair[0] for pair in pairs])
            count += 1
            if gain.mean() < -BELOW:
                error = gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
                lines.append(
                    (
                        *(str(part) for part in key),
                        measure,
                        f"{gain.mean():.4f}",
                        f"{error:.4f}",
                        len(gain),
                    )
                )
    text = f"Of {count} cells (data set, partners, scores, budget, measure) {len(lines)} are more than {BELOW} below the active party alone"
    if not lines:
        return text + "."
    header = (
        "data",
        "partners",
        "scores",
        "delta",
        "epsilon",
        "measure",
        "mean",
        "standard error",
        "splits",
    )
    return f"{text}:\n\n{markdown(header, lines)}"
