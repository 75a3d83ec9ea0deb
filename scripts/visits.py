"""The default demonstration on many seeds: `python -m scripts.visits --seeds 20`.

It owns the measure of what `hdpvfl up` followed by `hdpvfl predict` is worth on the data set
`visits`: held-out rows, noise and agreed orders all change with the seed. Federations are those of
the estimators: production roles without sockets.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.app import defaults
from hdpvfl_mq.data.bundled import load_dataset
from hdpvfl_mq.data.splits import deal, held_out
from hdpvfl_mq.data.tables import Table
from schemas.privacy import Budget
from scripts.reproduction.partners import Dealt
from scripts.reproduction.recovery import NOISED, joint, plan_of, reference

BUDGET = Budget(epsilon=defaults.EPSILON, delta=defaults.DELTA)


@dataclass(frozen=True)
class Seed:
    """AUC on the held-out rows of one seed, and whether the fit uses partners."""

    joint: float
    alone: float
    central: float
    is_joint: bool


def visits(seed: int) -> Dealt:
    """The split of `hdpvfl up --seed`, columns standardised by the training rows."""
    found = load_dataset(defaults.DATASET)
    active, passive = (_sorted(table) for table in (found.active, found.passive))
    held = held_out(active["id"], seed=seed)
    tables = [active, *deal(passive, defaults.PASSIVES)]
    blocks = []
    for table in tables:
        names = [name for name in table.names if name not in ("id", "y")]
        X = np.column_stack([table[name].astype(np.float64) for name in names])
        spread = X[~held].std(axis=0)
        blocks.append((X - X[~held].mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))
    ends = np.cumsum([block.shape[1] for block in blocks]).tolist()
    return Dealt(
        X=np.hstack(blocks),
        y=active["y"].astype(np.float64),
        held=held,
        columns=tuple(tuple(range(a, b)) for a, b in zip([0, *ends], ends, strict=False)),
    )


def _sorted(table: Table) -> Table:
    return table.take(np.argsort(table["id"].astype(np.int64), kind="stable"))


def measured(seed: int) -> Seed:
    """Train and score once."""
    data = visits(seed)
    found = joint(data, plan_of(data, NOISED, BUDGET, seed))
    alone, central = (reference(data, parties)["auc"] for parties in (1, len(data.columns)))
    return Seed(found["auc"], alone, central, bool(found["joint"]))


def main() -> int:
    """Print every seed, then means with their standard errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    found = []
    for seed in range(seeds):
        found.append(one := measured(seed))
        kept = "" if one.is_joint else "  without partners"
        print(f"{seed:3} {one.joint:.4f} {one.alone:.4f} {one.central:.4f}{kept}", flush=True)
    columns = np.array([(one.joint, one.alone, one.central) for one in found])
    gain = columns[:, 0] - columns[:, 1]
    for name, values in zip(("joint", "alone", "central"), columns.T, strict=True):
        print(f"{name:8}{values.mean():.4f} ({_error(values):.4f})")
    print(f"joint - alone {gain.mean():+.4f} ({_error(gain):.4f}), lowest {gain.min():+.4f}")
    print(f"better than alone on {int((gain > 0.0).sum())} of {seeds} seeds")
    return 0


def _error(values: np.ndarray) -> float:
    """The standard error of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


if __name__ == "__main__":
    sys.exit(main())
