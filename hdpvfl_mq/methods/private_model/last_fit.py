"""The active party's last fit: its own columns and one coefficient for each partner.

It owns that fit, its cross-validation and the choice whether to use partners at all; it knows noise
by its standard deviation only. All of it is post-processing by the party that holds the labels.
None of it leaves that party, so the rows of its columns are not scaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.methods.private_model.expectation import Expected
from hdpvfl_mq.methods.private_model.joint import Joint, validated
from hdpvfl_mq.methods.private_model.problem import FREE, Labels, Matrix, Problem
from hdpvfl_mq.methods.private_model.row_blocks import filled, summed

# Ridge strengths for the active party's columns, in rows. Without partners a stronger one must be
# better by this many standard errors.
_RIDGES, _BETTER = (0.5, 5.0, 50.0), 1.0
# The cross-validated gain of all judged rows, in units of log-likelihood, is the logarithm of the
# odds that the rows give for partners who know something against partners who know nothing. The fit
# uses partners unless their odds fall below 1; they start at 4 to 1.
_PRIOR_ODDS = math.log(4.0)
# If the forecast is that noise leaves less than this share of the partners' signal, odds start at 1
# to 20: training sees little of scores that noise hides, but a prediction has all of them.
_FORECAST, _DROWNED_ODDS = 0.15, -math.log(20.0)
_ROWS_TO_VALIDATE = 50_000


@dataclass(frozen=True, kw_only=True)
class LastFit:
    """The active party's final model: theta = A w + sum of coefficients times scores."""

    w: FloatVector = field(repr=False)
    w_std: FloatVector = field(repr=False)
    coefficients: FloatVector
    coefficient_std: FloatVector
    is_joint: bool
    gain: float  # cross-validated fall of the mean loss due to partners; gain_std is its error
    gain_std: float
    loss: float  # cross-validated


def last_fit(
    A: Matrix,
    labels: Labels,
    expected: Expected | None,
    engine: Engine | None = None,
    *,
    allocate: Allocate = np.empty,
    forecast: float = 1.0,
) -> LastFit:
    """Fit with and without partners and keep the fit that cross-validation prefers.

    `A` ends with the constant; its columns are first scaled (`column_scale`). `allocate` makes
    every array with a row for each row of `A`. `forecast` is the share of the partners' signal that
    noise leaves (`signal_kept_of`).
    """
    scale, unscaled = column_scale(A), A
    A = filled(A.shape, lambda rows: unscaled[rows] / scale, allocate)
    some = slice(0, min(len(A), _ROWS_TO_VALIDATE))
    own, best, dispersion = _own_ridges(A, labels, some, engine or LocalEngine(), allocate)
    partners = 0 if expected is None else expected.partners
    kept = _without_partners(own, dispersion, scale, partners)
    if expected is None or partners == 0:
        return kept
    joint = Joint.of(best.problem, expected, dispersion=dispersion, allocate=allocate)
    fall = best.losses - validated(joint, best.problem.of(some), expected.of(some), dispersion)
    # On rows without received scores both fits see only A.
    gain, gain_std = _mean_and_error(fall[: expected.seen])
    kept = replace(kept, gain=gain, gain_std=gain_std)
    odds = float(fall[: expected.seen].sum()) / dispersion
    odds += _PRIOR_ODDS if forecast >= _FORECAST else _DROWNED_ODDS
    if not odds >= 0.0:
        return kept
    kept = replace(kept, loss=float((best.losses - fall).mean()))
    return _with_partners(kept, joint, dispersion, scale)


def column_scale(A: Matrix) -> FloatVector:
    """The root mean square of every column of numbers, 1 for a column of zeros and ones.

    Scaled up, a rare category would be free to follow its few rows: a ridge must hold it back more
    than a common one.
    """
    squares = summed(len(A), lambda rows: np.sum(A[rows] ** 2, axis=0))
    others = summed(len(A), lambda rows: np.sum((A[rows] != 0.0) & (A[rows] != 1.0), axis=0))
    scale: FloatVector = np.sqrt(squares / len(A))
    return np.where((others > 0) & (scale > 0.0), scale, 1.0)


@dataclass(frozen=True)
class _Own:
    """A fit without partners at one ridge, with its cross-validated losses."""

    problem: Problem
    losses: FloatVector = field(repr=False)


def _without_partners(own: _Own, dispersion: float, scale: FloatVector, partners: int) -> LastFit:
    """The model of the active party's columns alone, with a coefficient of 0 for each partner."""
    w = own.problem.fit()
    std = np.sqrt(np.diag(own.problem.covariance(w, dispersion)))
    none = np.zeros(partners)
    return LastFit(
        w=w / scale,
        w_std=std / scale,
        coefficients=none,
        coefficient_std=none,
        is_joint=False,
        gain=0.0,
        gain_std=0.0,
        loss=float(own.losses.mean()),
    )


def _with_partners(judged: LastFit, joint: Joint, dispersion: float, scale: FloatVector) -> LastFit:
    """The weights and coefficients of the joint fit, with the gain and loss already judged."""
    covariance = joint.problem.covariance(joint.v, dispersion)
    d = len(scale) - 1
    spread = joint.L @ covariance[d:-1, d:-1] @ joint.L.T
    variances = np.append(np.diag(covariance)[:d], covariance[-1, -1])
    return replace(
        judged,
        w=np.append(joint.v[:d], joint.v[-1]) / scale,
        w_std=np.sqrt(variances) / scale,
        coefficients=joint.coefficients,
        coefficient_std=np.sqrt(np.diag(spread)),
        is_joint=True,
    )


def _own_ridges(
    A: Matrix, labels: Labels, some: slice, engine: Engine, allocate: Allocate
) -> tuple[_Own, _Own, float]:
    """The fit to keep without partners, the one to join with partners, and the dispersion.

    Without partners the ridge is the weakest one, unless a stronger one is better by more than a
    standard error: a difference by chance would cost a party what it has alone. The joint fit takes
    the ridge with the lowest loss, and is judged against the fit without partners at that ridge.

    Losses are negative log-likelihoods up to a factor; the dispersion is that factor, so that
    strengths in rows mean the same for every loss.
    """

    def at(ridge: float) -> Problem:
        strengths = np.append(np.full(A.shape[1] - 1, ridge), FREE)
        return Problem(X=A, labels=labels, strengths=strengths, given=nothing, engine=engine)

    nothing = filled((len(A),), lambda rows: np.zeros(rows.stop - rows.start), allocate)
    first = at(_RIDGES[0]).of(some)
    w = first.fit()
    dispersion = first.dispersion(w)
    problems = [at(ridge * dispersion) for ridge in _RIDGES]
    tried = [_Own(problem, problem.of(some).validated(w)) for problem in problems]
    own = tried[0]
    for stronger in tried[1:]:
        gain, gain_std = _mean_and_error(own.losses - stronger.losses)
        if gain > _BETTER * gain_std:
            own = stronger
    return own, min(tried, key=lambda each: float(each.losses.mean())), dispersion


def _mean_and_error(values: FloatVector) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))
