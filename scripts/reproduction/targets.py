"""The targets and whether they were met: one line per target, from the table of Q1.

It owns the targets, which were set before the method was chosen. A target whose figure is missing
is not met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scripts.reproduction import methods, tables
from scripts.reproduction.grid import DATASETS, DELTA, EPSILONS
from scripts.reproduction.tables import Row, chosen, mean

# At epsilon = 1: accuracy and AUC.
AT_ONE = {"adult": (0.836, 0.870), "credit": (0.797, 0.690), "breast": (0.955, 0.987)}
ALL = "0-19"
BELOW_ALONE = {"accuracy": 0.003, "auc": 0.003}
BELOW_CENTRAL = {"accuracy": 0.007, "auc": 0.010}


@dataclass(frozen=True)
class Verdict:
    """One target: the required figure and the measured one."""

    splits: str
    dataset: str
    target: str
    asked: float
    found: float
    epsilon: float
    error: float  # standard error of found, or of its difference to a reference on the same splits

    @property
    def met(self) -> bool:
        """Whether the measured figure reaches the target; a missing one (NaN) does not."""
        return self.found >= self.asked - 1e-12

    def row(self) -> dict[str, Any]:
        """The verdict as a table row."""
        return {**self.__dict__, "met": "met" if self.met else "not met"}


def judge(q1: Sequence[Row], splits: Sequence[int], label: str, grid: Sequence[float]) -> Any:
    """All targets for one set of splits."""
    verdicts = []
    for dataset in DATASETS:
        rows = chosen(q1, dataset=dataset, split=tuple(splits))
        verdicts += _above_alone(rows, dataset, label, grid)
        for measure, asked in zip(("accuracy", "auc"), AT_ONE[dataset], strict=True):
            runs = _sound(rows, 1.0)
            text = f"{measure} at epsilon = 1"
            error = standard_error(runs, measure)
            verdicts.append(Verdict(label, dataset, text, asked, mean(runs, measure), 1.0, error))
        central = chosen(rows, method=methods.CENTRAL)
        for measure, below in BELOW_CENTRAL.items():
            text = f"{measure} at epsilon = 10, central less {below:g}"
            runs, asked = _sound(rows, 10.0), mean(central, measure) - below
            error = standard_error(runs, measure, central)
            verdicts.append(Verdict(label, dataset, text, asked, mean(runs, measure), 10.0, error))
    return verdicts


def _above_alone(
    rows: Sequence[Row], dataset: str, label: str, grid: Sequence[float]
) -> list[Verdict]:
    """The epsilon at which a run gains least over the active party alone, for each measure."""
    verdicts = []
    for alone, name in ((methods.ALONE, ""), (methods.ALONE_STANDARDISED, ", not row-scaled")):
        reference = chosen(rows, method=alone)
        for measure, below in BELOW_ALONE.items():
            asked = mean(reference, measure) - below
            found = {e: mean(_sound(rows, e), measure) for e in grid}
            missing = [e for e, value in found.items() if math.isnan(value)]
            worst = missing[0] if missing else min(found, key=lambda e: found[e])
            text = f"{measure} at every epsilon, active alone{name} less {below:g}"
            error = standard_error(_sound(rows, worst), measure, reference)
            verdicts.append(Verdict(label, dataset, text, asked, found[worst], worst, error))
    return verdicts


def standard_error(rows: Sequence[Row], measure: str, reference: Sequence[Row] = ()) -> float:
    """The standard error of a mean, or of the mean difference to a reference split by split."""
    known = {row["split"]: row[measure] for row in reference}
    found = [row[measure] - known.get(row["split"], 0.0) for row in rows]
    return float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan


def _sound(rows: Sequence[Row], epsilon: float) -> list[Row]:
    return chosen(rows, method=methods.SOUND, delta=DELTA, epsilon=epsilon)


def all_verdicts(q1: Sequence[Row], epsilons: Sequence[float] = EPSILONS) -> list[Verdict]:
    """Verdicts for splits 0 to 9, for splits 10 to 19, and for all of them together."""
    sets = (("0-9", range(10)), ("10-19", range(10, 20)), (ALL, range(20)))
    present = set(tables.values(q1, "split"))
    return [
        verdict
        for label, splits in sets
        if present & set(splits) and (label != ALL or present >= set(splits))
        for verdict in judge(q1, splits, label, epsilons)
    ]
