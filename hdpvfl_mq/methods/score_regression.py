"""Regression of a partner's scores on the active party's columns, for later noised scores.

It owns the conditional mean of scores given the active party's columns and a noised share; it knows
no label. Training stores one regression for each partner, and prediction uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.block import ColumnBlock


@dataclass(frozen=True)
class ScoreRegression:
    """Regression of a passive party's scores on the active party's columns: X b, and the rest."""

    b: FloatVector = field(repr=False)
    variance: float

    def expected(
        self, block: ColumnBlock, share: FloatVector, *, noise_std: float
    ) -> tuple[FloatVector, float]:
        """Conditional mean of the scores given this party's columns and the noised scores.

        The second value is the remaining variance. Of the part that the columns do not explain, the
        mean uses what exceeds the noise.
        """
        noise = noise_std**2
        explained = block.scores(slice(0, block.rows), self.b).expose()
        left = share - explained
        trust = self.variance / (self.variance + noise) if self.variance > 0.0 else 0.0
        return explained + trust * (left - left.mean()), self.variance * (1.0 - trust)
