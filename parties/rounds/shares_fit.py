"""The active party's model, from the shares that arrived to what it holds after its last fit.

It owns the fit through the roles: labels of the common rows, expected scores, quality on rows held
out. It makes no release and sends nothing. The round itself is in parties/rounds/private_model.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from hdpvfl_mq.arrays.chunked import gather
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.families import family, unclipped
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.methods.private_model.expectation import Expected, Shares, expect
from hdpvfl_mq.methods.private_model.last_fit import LastFit, column_scale, last_fit
from hdpvfl_mq.methods.private_model.new_rows import theta_of
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.problem import Labels
from hdpvfl_mq.methods.private_model.row_blocks import filled
from hdpvfl_mq.methods.private_model.weights import signal_kept_of
from hdpvfl_mq.methods.private_model.worth import worth
from hdpvfl_mq.methods.score_regression import ScoreRegression
from parties.assets import Assets
from parties.common_rows import block_of, rows_of
from parties.phases import ActiveRounds, Setup, Training, checked
from schemas.ids import PartyId
from schemas.privacy import Release

Came = Mapping[PartyId, tuple[Release, FloatVector]]  # shares that count, in party order
_NO_FIT = "the last fit failed: look for columns or labels of extreme size"


@dataclass(frozen=True, kw_only=True)
class PrivateActive(ActiveRounds):
    """The result of the active party's last fit; none of it leaves."""

    fit: LastFit | None = field(default=None, repr=False)
    partners: tuple[PartyId, ...] = ()  # in the order of the coefficients
    score_regressions: Mapping[PartyId, ScoreRegression] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    held_out: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    worth: Mapping[PartyId, float] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    trouble: str = ""  # why there is no fit

    @property
    def own_losses(self) -> tuple[float, ...]:
        """The cross-validated loss of the last fit."""
        return () if self.fit is None else (self.fit.loss,)

    @property
    def coefficients(self) -> dict[PartyId, float]:
        """What each partner's scores are multiplied by; all 0 if the fit does not use partners."""
        if self.fit is None:
            return {}
        return dict(zip(self.partners, self.fit.coefficients.tolist(), strict=True))


def fitted_or_trouble(own: Assets, state: Training, came: Came) -> PrivateActive:
    """The fit with the shares, else without; if both fail, the run goes on and `trouble` says so.

    Labels and a peer's numbers can decide whether a fit fails: a process that stopped at a failure
    would reveal something about the labels to the peer.
    """
    for heard in (came, {}):
        try:
            with np.errstate(all="ignore"):  # a result that is not finite is refused below
                return _fitted(own, state, heard)
        except (ArithmeticError, ValueError):
            continue
    return replace(checked(PrivateActive, state.rounds), trouble=_NO_FIT)


def _fitted(own: Assets, state: Training, came: Came) -> PrivateActive:
    plan = checked(PrivateModelPlan, state.setup.plan)
    block, labels = block_of(own, state.setup), _labels(own, state.setup)
    learnt = plan.learnt_rows
    A = filled((block.rows, block.columns), block.dense, own.allocate)
    column = column_scale(A[learnt])
    received, expected = _received(own, plan, came), None
    if came:
        sizes = np.array([release.scale for release, _ in came.values()])
        shares = Shares(
            values=received[: plan.scored_rows[0].stop][: learnt.stop],
            noise_std=plan.passive_noise.noise_std * sizes,
            size=sizes,
        )
        scaled = filled(A[learnt].shape, lambda rows: A[rows] / column, own.allocate)
        expected = expect(scaled, shares, own.allocate)
    fit = last_fit(
        A[learnt],
        labels.of(learnt),
        expected,
        own.engine,
        allocate=own.allocate,
        forecast=signal_kept_of(plan, labels.y[learnt]),
    )
    if not np.isfinite([*fit.w, *fit.coefficients]).all():
        raise FloatingPointError("a result of the last fit is not finite")
    own_columns = A[plan.held_out] / column
    in_units = replace(fit, w=fit.w * column)
    held = _held_out(
        plan, own_columns, received=received, labels=labels, expected=expected, fit=in_units
    )
    return replace(
        checked(PrivateActive, state.rounds),
        w=fit.w,
        fit=fit,
        partners=tuple(came),
        score_regressions=MappingProxyType(_regressions(tuple(came), expected, column)),
        held_out=MappingProxyType(held),
        worth=MappingProxyType(dict(zip(came, worth(expected, A[learnt], fit), strict=True))),
    )


def _received(own: Assets, plan: PrivateModelPlan, came: Came) -> np.ndarray:
    """The received scores times their scales, with one column for each partner."""
    if not came:
        return np.zeros((0, 0))

    def stacked(rows: slice) -> np.ndarray:
        parts = [values[rows] * release.scale for release, values in came.values()]
        return np.column_stack(parts)

    return filled((plan.share_count(0), len(came)), stacked, own.allocate)


def _regressions(
    partners: tuple[PartyId, ...], expected: Expected | None, column: FloatVector
) -> dict[PartyId, ScoreRegression]:
    """Regression of each partner's scores on the active party's columns, for noised scores."""
    if expected is None:
        return {}
    slopes, left = expected.slopes / column[:, None], np.diag(expected.doubt_unseen)
    return {
        party: ScoreRegression(slopes[:, number], float(left[number]))
        for number, party in enumerate(partners)
    }


def _labels(own: Assets, setup: Setup) -> Labels:
    """Labels of the common rows, unclipped: this fit needs no bound."""
    order = rows_of(own, setup).order
    assert own.data.y is not None
    parts = (own.data.y, own.data.weights, own.data.offset)
    y, weights, offset = (
        None if part is None else gather(part, order, own.allocate) for part in parts
    )
    assert y is not None
    return Labels(
        family=family(unclipped(setup.plan.manifest.loss)), y=y, weights=weights, offset=offset
    )


def _held_out(
    plan: PrivateModelPlan,
    A: np.ndarray,
    *,
    received: np.ndarray,
    labels: Labels,
    expected: Expected | None,
    fit: LastFit,
) -> dict[str, float]:
    """Quality on the held-out rows, with the partners' scores of those rows."""
    rows = plan.held_out
    count = rows.stop - rows.start
    if count == 0:
        return {}
    theta = theta_of(fit, labels.family, A, expected, received[-count:])
    if labels.offset is not None:
        theta = theta + labels.offset[rows]
    return {"rows": float(count), **quality(labels.family, theta, labels.y[rows])}
