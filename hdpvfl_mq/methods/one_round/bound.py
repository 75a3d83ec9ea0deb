"""What one replaced row can do to the releases of the one-round method, and their noise.

It owns the two closed-form bounds and the plans made from them; it knows no data and no solver.
Each side releases once, a function of the minimiser w of a strongly convex objective

    F(w) = (1/n) sum_j loss_j(x_j w) + (lambda / 2) |w|^2     over a convex set of weights.

*Bound.* Let F' differ in row i, w' minimise it, and d = w' - w. Optimality of both over the same
convex set gives (grad F'(w') - grad F(w))'d <= 0. Split off row i, with u the difference of its
gradients, each at its own minimiser: |u| <= 2 pull. The other rows' residuals move by s_j x_j d,
where the slope s_j lies in [0, beta] because they are monotone. Hence

    (1/n) sum_{j != i} s_j (x_j d)^2 + lambda |d|^2  <=  u'd / n  <=  2 pull |d| / n .

So |d| <= 2 pull / (n lambda), and since t -> 2 pull t / n - lambda t^2 is at most
pull^2 / (n^2 lambda), also sum_{j != i} s_j (x_j d)^2 <= pull^2 / (n lambda).

Active: pull = L, the release is the residual: sum (s_j x_j d)^2 <= beta L^2 / (n lambda).
Passive: the loss of a row is z_j theta + (kappa / 2) theta^2, pull = C + kappa k, s_j = kappa, the
release is the score: sum (x_j d)^2 <= (C + kappa k)^2 / (n kappa lambda). Clipping scores to B
does not enlarge a move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.glm.block import SCORE_ROUNDING
from hdpvfl_mq.privacy.plan import (
    COARSEST_EXPONENT,
    FINEST_EXPONENT,
    NoisePlan,
    fit_noise,
    float_slack,
)
from schemas.privacy import Budget

# Covers the roundings of the few operations below.
_UP = 1.0 + 2.0**-46
# A grid may add this much to the sensitivity.
_GRID_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRelease:
    """Both sides in one form: the other rows' square, the own row's move, the solver's slack.

    `rounding` bounds how far roundings can part a value in two runs of equal weights.
    """

    rows: int
    others: float
    own: float
    slack: float
    rounding: float

    def square(self, grid: float) -> float:
        """Delta^2 of the release on a grid.

        *Bound.* With g' = grid + float_slack + slack per coordinate, by the triangle inequality in
        n dimensions: (sqrt(others) + sqrt(n) g')^2 + (own + g')^2.
        """
        step = grid + float_slack(self.rounding) + self.slack
        apart = math.sqrt(self.others) + math.sqrt(self.rows) * step
        return (apart**2 + (self.own + step) ** 2) * _UP

    def coarsest_exponent(self) -> int:
        """Give the exponent of the largest power of two that adds less than 0.1 % to Delta."""
        allowed = self.square(0.0) * (1.0 + _GRID_SHARE) ** 2
        for exponent in range(COARSEST_EXPONENT, FINEST_EXPONENT, -1):
            if self.square(2.0**exponent) < allowed:
                return exponent
        return FINEST_EXPONENT


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimiserActive:
    """Public constants of the active party.

    `own_release` bounds the move of one residual at equal intercepts (`release_bound` of the
    loss at K, the reach of the features), `error` the solver's distance from the minimiser,
    `rounding` how far roundings can part the residuals of one row in two runs.
    """

    rows: int
    residual_bound: float
    smoothness: float
    strength: float
    own_release: float
    intercept: bool
    error: float
    rounding: float

    def __post_init__(self) -> None:
        _check(self.rows, self.residual_bound, self.smoothness, self.strength, self.error)

    def release(self) -> OneRelease:
        """*Bound.* Own row: theta = features' part + intercept part. Change features and label
        first, at the old intercept: `own_release`. Then move the intercept w_0 / sqrt(2), by at
        most |d| / sqrt(2) <= sqrt(2) L / (n lambda): beta times that. Never more than 2 L.
        """
        weight = self.rows * self.strength
        drift = math.sqrt(2.0) * self.residual_bound / weight if self.intercept else 0.0
        own = min(2.0 * self.residual_bound, self.own_release + self.smoothness * drift)
        return OneRelease(
            rows=self.rows,
            others=self.smoothness * self.residual_bound**2 / weight,
            own=own,
            slack=2.0 * self.smoothness * self.error,
            rounding=self.rounding,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimiserPassive:
    """Public constants of a passive party: C, kappa, lambda, k, B and the solver's error."""

    rows: int
    clip_received: float
    curvature: float
    strength: float
    weight_norm: float
    score_bound: float
    error: float

    def __post_init__(self) -> None:
        _check(self.rows, self.clip_received, self.curvature, self.strength, self.error)
        _check(1, self.weight_norm, self.score_bound, 1.0, 0.0)

    @property
    def pull(self) -> float:
        """The largest gradient of one row: C + kappa k."""
        return self.clip_received + self.curvature * self.weight_norm

    def release(self) -> OneRelease:
        """*Bound.* Own row: scores lie within min(k, B), before and after."""
        return OneRelease(
            rows=self.rows,
            others=self.pull**2 / (self.rows * self.curvature * self.strength),
            own=2.0 * min(self.weight_norm, self.score_bound),
            slack=2.0 * self.error,
            rounding=SCORE_ROUNDING * self.weight_norm,
        )

    def d_model(self) -> float:
        """Bound the distance of the final weights of neighbours, for predictions."""
        moved = 2.0 * self.pull / (self.rows * self.strength) + 2.0 * self.error
        return min(moved * _UP, 2.0 * self.weight_norm)


def minimiser_active_plan(bounds: MinimiserActive, budget: Budget) -> NoisePlan:
    """Plan the one release of the active party within the budget."""
    return _plan(bounds.release(), budget, value_bound=bounds.residual_bound)


def minimiser_passive_plan(bounds: MinimiserPassive, budget: Budget) -> NoisePlan:
    """Plan the one release of a passive party within the budget."""
    reach = min(bounds.weight_norm, bounds.score_bound)
    return _plan(bounds.release(), budget, value_bound=reach)


def _plan(release: OneRelease, budget: Budget, *, value_bound: float) -> NoisePlan:
    exponent = release.coarsest_exponent()
    squares = np.array([release.square(2.0**exponent)])
    values = np.array([release.rows], dtype=np.int64)
    return fit_noise(squares, values, exponent, budget, value_bound)


def _check(rows: int, pull: float, gain: float, strength: float, error: float) -> None:
    if rows < 1 or not min(pull, gain, strength) > 0.0 or not 0.0 <= error < math.inf:
        raise SettingsError("rows, bounds, curvature and strength must all be positive")
    if math.isinf(pull) or math.isinf(gain):
        raise RefusedError("the sound guarantee needs a finite clip and a finite residual bound")
