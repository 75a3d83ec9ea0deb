"""The rule of the one-round method: from its settings to the public numbers both sides share.

It owns the terms and the recommended settings; it knows no noise but its width. docs/one-round.md
has the argument and the measurements behind the constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families.base import Family
from hdpvfl_mq.glm.solver import PART_ROWS
from schemas.methods import OneRound

# Solver errors of all rows together may move a release by this share of what one row may be.
_ERROR_SHARE = 2.0**-13


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTerms:
    """What the active party's fit depends on: lambda_A, k_f, and the solver's public error.

    `rounding` bounds how far roundings can part the residuals of one row in two runs.
    """

    strength: float
    feature_norm: float
    error: float
    rounding: float


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


def recommended(loss: Family) -> OneRound:
    """Settings that learn for a loss, from what its manifest declares.

    Only logistic gains from a short reach of the features, and only log-odds are as large as
    its weight variance says.
    """
    if loss.is_logit:
        return OneRound(curvature=loss.typical_slope())
    return OneRound(
        active_strength_rows=10.0 * loss.smoothness,
        feature_reach=8.0,
        curvature=loss.typical_slope(),
        weight_variance=0.1,
    )


def active_terms(method: OneRound, rows: int, loss: Family, *, intercept: bool) -> ActiveTerms:
    """The active party's terms; they do not depend on anybody's noise.

    With an intercept a row is (x, 1) / sqrt(2), so features of norm sqrt(2) K move theta by
    at most K.
    """
    if not loss.is_zero_legal:
        raise SettingsError(
            f"{loss.name} has no legal score at zero weights: use gamma, or descent"
        )
    strength = method.active_strength_rows / rows
    # The intercept lies in no ball; its part of a score is at most theta and the features' part.
    score_norm = 2.0 * method.feature_reach + loss.spec.offset_max
    rounding = loss.rounding(score_norm + loss.swing / loss.smoothness)
    return ActiveTerms(
        strength=strength,
        feature_norm=method.feature_reach * (math.sqrt(2.0) if intercept else 1.0),
        error=_weight_error(
            rows,
            strength,
            reach=loss.residual_bound / loss.smoothness,
            pull=loss.residual_bound,
            rounding=rounding,
        ),
        rounding=rounding,
    )


def all_terms(
    method: OneRound,
    rows: int,
    loss: Family,
    passives: int,
    active: ActiveTerms,
    *,
    noise_std: float,
) -> MinimiserTerms:
    """All terms, given the deviation of the active party's noise.

    The passive ridge is the noise of the received residuals over n curvature, for weights of
    variance weight_variance / passives, and stronger where the signal would drown.
    """
    kappa = method.curvature
    spread = method.weight_variance / passives
    plain = (noise_std**2 + kappa) / (rows * kappa * spread)
    strength = plain * (1.0 + method.shrink * plain / kappa)
    damped = kappa * (1.0 + method.curvature_damping * (passives - 1))
    clip = loss.residual_bound + method.received_clip * noise_std
    signal = method.prior_share * kappa
    return MinimiserTerms(
        active_strength=active.strength,
        feature_norm=active.feature_norm,
        active_error=active.error,
        curvature=damped,
        passive_strength=strength,
        passive_error=_weight_error(
            rows,
            strength,
            reach=min(method.weight_norm, method.score_bound),
            pull=clip + damped * method.weight_norm,
        ),
        weight_norm=method.weight_norm,
        score_bound=method.score_bound,
        received_clip=clip,
        prior_variance=spread * signal / (signal + strength),
    )


def _weight_error(
    rows: int, strength: float, *, reach: float, pull: float, rounding: float = 0.0
) -> float:
    """How far a solver may stay from the minimiser.

    *Bound*: at least four times what the roundings of a sum over all rows can do to a certificate
    over the strength, and twice what those of the residuals in it can (`rounding` is for two runs);
    where that allows, a share of `reach` that costs nothing.
    """
    total = 4.0 * pull * (PART_ROWS + rows / PART_ROWS + 64.0) * 2.0**-52 + rounding
    return max(_ERROR_SHARE * reach / math.sqrt(rows), total / strength)
