"""The one-round method: what each side minimises, and the public numbers both derive it from.

It owns the rule from settings to terms and the two fits; it knows no noise but its width, and no
message. The active party minimises its own loss and releases the residuals; every passive party
fits its scores to what it received and releases them; nothing follows. docs/one-round.md has the
argument and the measurements behind the constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families.base import Family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.solver import (
    PART_ROWS,
    Objective,
    accelerated,
    mean_gradient,
    newton,
    parts,
    quadratic_over_ball,
)

# Solver errors of all rows together may move a release by this share of what one row may be.
_ERROR_SHARE = 2.0**-13


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTerms:
    """What the active party's fit depends on: lambda_A, k_f, and the solver's public error."""

    strength: float
    feature_norm: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimiserTerms:
    """Public numbers of a run, equal at all parties.

    `active_error` and `passive_error` bound how far the weights that a solver returns are from
    the true minimiser; the privacy layer charges them.
    """

    active_strength: float
    feature_norm: float
    active_error: float
    curvature: float
    passive_strength: float
    passive_error: float
    weight_norm: float
    score_bound: float
    received_clip: float
    prior_variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimiserRule:
    """From the settings of a manifest to its terms; the defaults are those of logistic.

    `curvature` is kappa, the slope a passive party takes the loss to have; `received_clip` counts
    the active party's noise_std beyond L; `weight_variance` is what weights are expected to be.
    """

    active_strength_rows: float = 10.0
    feature_reach: float = 0.5
    curvature: float = 0.125
    curvature_damping: float = 0.5
    weight_norm: float = 8.0
    score_bound: float = 2.0
    received_clip: float = 2.0
    shrink: float = 3.0
    prior_share: float = 0.1
    weight_variance: float = 1.0

    @classmethod
    def recommended(cls, loss: Family) -> MinimiserRule:
        """Settings that learn for a loss, from what its manifest declares.

        Only logistic gains from a short reach of the features, and only log-odds are as large as
        its weight variance says. The slope of Poisson is the mean label, which nobody may read
        off: a third of the clip is a guess, and one that is too small overshoots.
        """
        if loss.name in ("logistic", "bernoulli"):
            return cls()
        phi = loss.spec.dispersion
        curvature = {
            "least_squares": 2.0,
            "normal": 1.0 / phi,
            "gamma": 1.0 / phi,
            "poisson": loss.clip / 3.0,
        }.get(loss.name, 1.0)
        return cls(
            active_strength_rows=10.0 * loss.smoothness,
            feature_reach=8.0,
            curvature=curvature,
            weight_variance=0.1,
        )

    def active(self, rows: int, loss: Family, *, intercept: bool) -> ActiveTerms:
        """The active party's terms; they do not depend on anybody's noise.

        With an intercept a row is (x, 1) / sqrt(2), so features of norm sqrt(2) K move theta by
        at most K.
        """
        if loss.name == "gamma_canonical":
            raise SettingsError(
                "gamma_canonical has no legal score at zero weights: use gamma, or descent"
            )
        strength = self.active_strength_rows / rows
        return ActiveTerms(
            strength=strength,
            feature_norm=self.feature_reach * (math.sqrt(2.0) if intercept else 1.0),
            error=_weight_error(
                rows,
                strength,
                reach=loss.residual_bound / loss.smoothness,
                pull=loss.residual_bound,
            ),
        )

    def terms(
        self, rows: int, loss: Family, passives: int, active: ActiveTerms, *, noise_std: float
    ) -> MinimiserTerms:
        """All terms, given the deviation of the active party's noise.

        The passive ridge is the noise of the received residuals over n curvature, for weights of
        variance weight_variance / passives, and stronger where the signal would drown.
        """
        kappa = self.curvature
        spread = self.weight_variance / passives
        plain = (noise_std**2 + kappa) / (rows * kappa * spread)
        strength = plain * (1.0 + self.shrink * plain / kappa)
        damped = kappa * (1.0 + self.curvature_damping * (passives - 1))
        clip = loss.residual_bound + self.received_clip * noise_std
        signal = self.prior_share * kappa
        return MinimiserTerms(
            active_strength=active.strength,
            feature_norm=active.feature_norm,
            active_error=active.error,
            curvature=damped,
            passive_strength=strength,
            passive_error=_weight_error(
                rows,
                strength,
                reach=min(self.weight_norm, self.score_bound),
                pull=clip + damped * self.weight_norm,
            ),
            weight_norm=self.weight_norm,
            score_bound=self.score_bound,
            received_clip=clip,
            prior_variance=spread * signal / (signal + strength),
        )


def _weight_error(rows: int, strength: float, *, reach: float, pull: float) -> float:
    """How far a solver may stay from the minimiser.

    *Bound*: at least four times what the roundings of a sum over all rows can do to a certificate
    over the strength; where that allows, a share of `reach` that costs nothing.
    """
    rounding = pull * (PART_ROWS + rows / PART_ROWS + 64.0) * 2.0**-52
    return max(_ERROR_SHARE * reach / math.sqrt(rows), 4.0 * rounding / strength)


def fit_active(
    block: ColumnBlock, response: Response, *, strength: float, feature_norm: float, error: float
) -> FloatVector:
    """argmin mean loss of X w + strength / 2 |w|^2 (the intercept too), |features| <= feature_norm.

    *Bound*: within `error` of it whatever the data are, half of that for roundings.
    """
    objective = Objective(
        block=block,
        response=response,
        strengths=np.full(block.columns, strength),
        radius=feature_norm,
    )
    tolerance = error * strength / 2.0
    w, certified = newton(objective, tolerance=tolerance)
    return w if certified else accelerated(objective, tolerance=tolerance)


def fit_passive(
    block: ColumnBlock,
    clipped: FloatVector,
    *,
    curvature: float,
    strength: float,
    weight_norm: float,
) -> FloatVector:
    """argmin z'Xw / n + curvature / 2 |Xw|^2 / n + strength / 2 |w|^2 over |w| <= weight_norm.

    z is what was received, already clipped. Solved directly: the error is that of roundings.
    """
    B = np.zeros((block.columns, block.columns))
    for part in parts(block.rows):
        B += block.gram(part) * (curvature * (part.stop - part.start) / block.rows)
    B[np.diag_indices_from(B)] += strength
    pull = mean_gradient(block, clipped)
    return quadratic_over_ball(B, -pull, radius=weight_norm, intercept=False)
