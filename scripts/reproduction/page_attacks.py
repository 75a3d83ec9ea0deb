"""The page's text on attacks against the bound and on the gain from each part of the method.

It owns this text; every number comes from the rows it is given.
"""

# ruff: noqa: E501 - lines of prose
from __future__ import annotations

import math
from collections.abc import Sequence

from scripts.reproduction import questions
from scripts.reproduction.page_quality import pair
from scripts.reproduction.tables import Row, chosen, markdown, values

_HEADER = (
    "attack",
    "data",
    "run",
    "epsilon",
    "mu",
    "AUC before",
    "AUC reached",
    "AUC at most",
    "true positives at 1 % false: reached / at most",
)


def attacked(rows: Sequence[Row], drawn: Sequence[str]) -> str:
    if not rows:
        return ""
    games = [r for r in rows if r["attack"] == "one label"]
    played = "; ".join(
        f"epsilon = {r['epsilon']:g}: mu {r['mu_reached']:.3f} of {r['mu']:.3f}" for r in games
    )
    return f"""## Attacks on the transcript

Run on releases decoded from the journals of real runs. *labels*: a passive party takes the sign of the residuals
(the direct label inference of the literature on VFL); *features*: the active party fits a sensitive attribute to its
own columns and all scores it saw, knowing the attribute of a quarter of the rows (feature inference after Luo et al.
2021); "before" is the same attacker without the scores. *one label*: the game of the definition, everything known
but one label, the best test there is. The bound is that of the run's real mu; for features it is an estimate, simulated from
the log-odds of the attacker without scores. Errors are one standard error. The AUC that
exceeds its bound most does so by {_excess(rows):.1f} of them. Under the published noise the bound for features is idle: it counts an active
party that may send anything, and this attacker only listens; that it gains nothing does not make the run safe.

![](attacks.png)

{markdown(_HEADER, [_line(row) for row in rows])}

How much of the promised mu the game reaches (largest of twenty rows): {played}. It stays below because
the bound allows for the worst row and data, not these. The audit of the privacy layer (`scripts/audit_privacy.py`) attacks
constructed worst cases and thirteen planted bugs."""


def _line(row: Row) -> tuple[str, ...]:
    before = f"{row['auc_before']:.3f}" if row.get("auc_before") not in ("", None) else "0.500"
    tpr, bound = row.get("tpr"), row.get("tpr_bound")
    return (
        row["attack"] + (f" ({row['target']})" if row.get("target") else ""),
        row["dataset"],
        row["method"],
        f"{row['epsilon']:g}" if row["epsilon"] != "" else "",
        f"{row['mu']:.3g}" if not math.isinf(row["mu"]) else "infinite",
        before,
        f"{row['auc']:.3f} ± {row['auc_error']:.3f}",
        f"{row['auc_bound']:.3f}",
        f"{tpr:.3f} / {bound:.3f}" if bound not in ("", None) else "",
    )


def _excess(rows: Sequence[Row]) -> float:
    """The largest excess of an attack over its bound, in standard errors; at least 0."""
    above = [(r["auc"] - r["auc_bound"]) / r["auc_error"] for r in rows if r["auc_error"] > 0.0]
    return float(max([0.0, *above]))


def variants(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    columns = [(d, e) for d in values(rows, "dataset") for e in values(rows, "epsilon")]
    lines = []
    for name in questions.VARIANTS:
        here = chosen(rows, variant=name)
        if here:
            lines.append((name, *(pair(chosen(here, dataset=d, epsilon=e)) for d, e in columns)))
    splits = len(values(rows, "split"))
    return f"""## What was tried and did not help

The sound method with other constants and as descent, same roles, {splits} splits (a difference below 0.003 of accuracy
is noise on Credit and Adult, below 0.01 on Breast). One rule has to serve all data sets and budgets.

{markdown(("sound method", *(f"{d}, {e:g}" for d, e in columns)), lines)}"""
