"""How well scores fit known labels: accuracy and AUC, or the explained share of the deviance.

It owns the measures that a summary shows; it does not know how scores were computed. It is used on
rows whose scores may be seen, never inside a run.
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families.base import Family


def quality(family: Family, theta: FloatVector, y: FloatVector) -> dict[str, float]:
    """`accuracy` and `auc` for two classes, `d2` for other labels; y as in the data."""
    labels = family.encode(y)
    if family.label_kind == "binary":
        upper = labels > 0.0
        return {
            "accuracy": float(np.mean((family.mean(theta) > 0.5) == upper)),
            "auc": area_under_curve(theta, upper),
        }
    return {"d2": explained_deviance(family, theta, labels)}


def explained_deviance(family: Family, theta: FloatVector, labels: FloatVector) -> float:
    """1 - deviance / deviance of the best constant; R squared for least squares.

    *Domain*: encoded labels that are not all equal, else NaN. The constant is the mean of the
    labels, which for Huber is only close to the best.
    """
    perfect = family.loss(family.link(labels), labels).sum()
    constant = family.link(np.full(len(labels), labels.mean()))
    null = family.loss(constant, labels).sum() - perfect
    if not null > 0.0:
        return float("nan")
    return float(1.0 - (family.loss(theta, labels).sum() - perfect) / null)


def area_under_curve(
    theta: FloatVector, upper: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> float:
    """Probability that an upper-class row scores above a lower-class row; ties count half.

    *Domain*: both classes present, else NaN. A party's step computes it too: importing scikit-learn
    for it takes 1.3 s and 109 MiB in each process (docs/performance.md).
    """
    if upper.all() or not upper.any():
        return float("nan")
    _, places, counts = np.unique(theta, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0  # equal scores share their mean rank
    above = int(upper.sum())
    wins = float(ranks[places][upper].sum()) - above * (above + 1) / 2.0
    return wins / (above * (len(upper) - above))
