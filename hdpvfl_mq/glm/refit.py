"""The active party's last fit, to its own labels and all it received; it shows in no message.

It owns how noised scores are weighed against the party's own columns and what the remaining doubt
does to the loss; it knows noise by its deviation only. All of it is post-processing by the party
that holds the labels, so it costs nobody anything; the weights never leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import Objective, newton
from hdpvfl_mq.unreleased import FloatVector

# Variance of the part of a share that the own columns tell, as a part of the prior variance.
_TOLD_SHARE = 0.2
# Keeps an intercept finite where every label is the same.
_INTERCEPT_STRENGTH = 1e-9
_TOLERANCE = 1e-11
_LOGIT = ("logistic", "bernoulli")


def refit(
    block: ColumnBlock,
    response: Response,
    shares: Sequence[FloatVector],
    *,
    noise_std: float,
    prior_variance: float,
) -> FloatVector:
    """The active weights that go with the passive parties' exact scores.

    `shares` are the received scores in the order of the parties. The fit sees their conditional
    means as an offset, the prediction sees the scores themselves. Under the logit link a score in
    doubt by the variance V pulls probabilities to one half by c = sqrt(1 + pi V / 8), which is
    taken out of the weights again.
    """
    offset, doubt = np.zeros(block.rows), 0.0
    for share in shares:
        mean, variance = conditional_scores(
            block, share, noise_std=noise_std, prior_variance=prior_variance
        )
        offset += mean
        doubt += variance
    flattens = response.family.name in _LOGIT
    flattening = math.sqrt(1.0 + math.pi * doubt / 8.0) if flattens else 1.0
    strengths = np.full(block.columns, 0.5 / block.rows)
    strengths[list(block.free)] = _INTERCEPT_STRENGTH
    objective = Objective(
        block=block, response=response, strengths=strengths, received=offset / flattening
    )
    w, _ = newton(objective, tolerance=_TOLERANCE)
    return w * flattening


def conditional_scores(
    block: ColumnBlock, share: FloatVector, *, noise_std: float, prior_variance: float
) -> tuple[FloatVector, float]:
    """What the true scores are expected to be given X^A and the noised ones, and their doubt.

    A ridge regression on the own columns, and of what is left the part that exceeds the noise.
    """
    rows, noise = slice(0, block.rows), noise_std**2
    ridge = noise / (block.rows * _TOLD_SHARE * prior_variance)
    G = block.gram(rows) + ridge * np.eye(block.columns)
    b: FloatVector = np.linalg.solve(G, block.gradient(rows, share)).astype(np.float64)
    told = block.scores(rows, b).expose()
    left = share - told
    signal = min(max(float(left.var()) - noise, 0.0), prior_variance)
    trust = signal / (signal + noise) if signal > 0.0 else 0.0
    return told + trust * (left - left.mean()), signal * (1.0 - trust)
