"""The active party's last fit, to its own labels and all it received; it shows in no message.

It owns how noised scores are weighed against the party's own columns and what the remaining doubt
does to the loss; it knows noise by its deviation only. All of it is post-processing by the party
that holds the labels, so it costs nobody anything; the weights never leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families.base import Family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import Objective, newton

# Variance of the part of a share that this party's columns explain, relative to the prior variance.
_EXPLAINED_SHARE = 0.2
# Keeps an intercept finite where every label is the same.
_INTERCEPT_STRENGTH = 1e-9
_TOLERANCE = 1e-11


@dataclass(frozen=True)
class ScoreRegression:
    """Regression of a passive party's scores on the active party's columns: X b, and the rest."""

    b: FloatVector = field(repr=False)
    variance: float

    def expected(
        self, block: ColumnBlock, share: FloatVector, *, noise_std: float
    ) -> tuple[FloatVector, float]:
        """Conditional mean of the scores given this party's columns and the noised scores.

        The second value is the variance that stays. Of what the columns do not explain, the mean
        takes the part that exceeds the noise.
        """
        noise = noise_std**2
        explained = block.scores(slice(0, block.rows), self.b).expose()
        left = share - explained
        trust = self.variance / (self.variance + noise) if self.variance > 0.0 else 0.0
        return explained + trust * (left - left.mean()), self.variance * (1.0 - trust)


def refit(
    block: ColumnBlock,
    response: Response,
    shares: Sequence[FloatVector],
    *,
    noise_std: float,
    prior_variance: float,
) -> tuple[FloatVector, tuple[ScoreRegression, ...]]:
    """The active weights for the passive parties' exact scores, and a regression of each.

    `shares` are the received scores in the order of the parties. The fit sees their conditional
    means as an offset, the prediction sees the scores themselves. Under the logit link a score in
    doubt by the variance V pulls probabilities to one half by c = sqrt(1 + pi V / 8), which is
    taken out of the weights again.
    """
    offset, doubt = np.zeros(block.rows), 0.0
    regressions = tuple(
        regress(block, share, noise_std=noise_std, prior_variance=prior_variance)
        for share in shares
    )
    for share, each in zip(shares, regressions, strict=True):
        mean, variance = each.expected(block, share, noise_std=noise_std)
        offset += mean
        doubt += variance
    flattening = flattened_by(response.family, doubt)
    strengths = np.full(block.columns, 0.5 / block.rows)
    strengths[list(block.free)] = _INTERCEPT_STRENGTH
    objective = Objective(
        block=block, response=response, strengths=strengths, received=offset / flattening
    )
    w, _ = newton(objective, tolerance=_TOLERANCE)
    return w * flattening, regressions


def flattened_by(family: Family, doubt: float) -> float:
    """By how much doubt about theta pulls probabilities to one half, as a divisor of theta."""
    return math.sqrt(1.0 + math.pi * doubt / 8.0) if family.is_logit else 1.0


def regress(
    block: ColumnBlock, share: FloatVector, *, noise_std: float, prior_variance: float
) -> ScoreRegression:
    """A ridge regression of noised scores on the own columns, and the variance of what is left."""
    rows, noise = slice(0, block.rows), noise_std**2
    ridge = noise / (block.rows * _EXPLAINED_SHARE * prior_variance)
    G = block.gram(rows) + ridge * np.eye(block.columns)
    b: FloatVector = np.linalg.solve(G, block.gradient(rows, share)).astype(np.float64)
    left = share - block.scores(rows, b).expose()
    return ScoreRegression(b, min(max(float(left.var()) - noise, 0.0), prior_variance))
