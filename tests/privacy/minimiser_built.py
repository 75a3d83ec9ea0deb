"""Pairs of neighbouring one-round runs that are built to come close to a bound.

It owns the constructions; each gives the public setting and the two releases of one run. `bugs`
leave a limit out of the fit.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from minimiser_pairs import ActiveSetting, Array, PassiveSetting, active_release, passive_release

from hdpvfl_mq.glm.families import family
from schemas.model import LossSpec

LOGISTIC, HUBER = family(LossSpec(name="logistic")), family(LossSpec(name="huber"))


def replaced(X: Array, y: Array, row: float, label: float) -> tuple[Array, Array]:
    other, labels = X.copy(), y.copy()
    other[0, 0, 0], labels[0, 0] = row, label
    return other, labels


def huber_pair() -> tuple[ActiveSetting, Array, Array]:
    """Ten rows with slope 1 lie along the replaced one, so that their curvature is lambda; the
    residuals of all others are clipped, in pairs of opposite sign. Row 0 flips its label.
    """
    rows = 61
    setting = ActiveSetting(loss=HUBER, rows=rows, strength=10.0 / rows, reach=8.0)
    X, y = np.full((1, rows, 1), -1.0), np.zeros((1, rows))
    X[0, :11] = 1.0
    y[0, 11:] = np.tile([3.0, -3.0], 25)
    y[0, 0] = 3.0
    before = active_release(X, y, setting)
    return setting, before, active_release(*replaced(X, y, 1.0, -3.0), setting)


def logistic_pair(**bugs: bool) -> tuple[ActiveSetting, Array, Array]:
    """The others push the features' weight to the sphere; row 0 flips direction and label."""
    rows = 401
    setting = ActiveSetting(loss=LOGISTIC, rows=rows, strength=10.0 / rows, reach=0.5)
    X = np.tile([1.0, -1.0], 201)[:rows].reshape(1, rows, 1)
    y = X[:, :, 0].copy()
    X[0, 0], y[0, 0] = -1.0, 1.0
    before = active_release(X, y, setting, **bugs)
    return setting, before, active_release(*replaced(X, y, 1.0, -1.0), setting, **bugs)


def intercept_pair(**bugs: bool) -> tuple[ActiveSetting, Array, Array]:
    """No row has features; one row besides row 0 has a slope, the others are clipped in pairs."""
    setting = ActiveSetting(loss=HUBER, rows=12, strength=6.0 / 12, reach=0.2)
    X, y = np.zeros((1, 12, 1)), np.zeros((1, 12))
    y[0, 2:] = np.tile([30.0, -30.0], 5)
    y[0, 0] = 30.0
    before = active_release(X, y, setting, **bugs)
    return setting, before, active_release(*replaced(X, y, 0.0, -30.0), setting, **bugs)


def passive_pair(clip: float = 10.0) -> tuple[PassiveSetting, Array, Array]:
    """The other rows' curvature is lambda along the replaced row, which turns round."""
    setting = PassiveSetting(
        rows=100, clip=10.0, curvature=0.1, strength=0.05, norm=8.0, score_bound=1.0
    )
    X, z = np.full((1, 100, 1), math.sqrt(0.5)), np.zeros((1, 100))
    X[0, 0], z[0, 0] = 1.0, 1e9
    other = X.copy()
    other[0, 0] = -1.0
    fit = replace(setting, clip=clip)
    return setting, passive_release(X, z, fit), passive_release(other, z, fit)


def weak_pair() -> tuple[PassiveSetting, Array, Array]:
    """Short rows bring long weights, so that kappa k dwarfs what was received; row 0 leaves."""
    setting = PassiveSetting(
        rows=2000, clip=1.0, curvature=1.0, strength=0.01, norm=50.0, score_bound=0.6
    )
    X, z = np.full((1, 2000, 1), 0.1), np.full((1, 2000), -1.0)
    X[0, 0], z[0, 0] = 1.0, 1.0
    other = X.copy()
    other[0, 0] = 0.0
    return setting, passive_release(X, z, setting), passive_release(other, z, setting)


def turned_pair(norm: float, score_bound: float) -> tuple[PassiveSetting, Array, Array]:
    """The others push the weight to the sphere; row 0 turns round."""
    setting = PassiveSetting(
        rows=50, clip=5.0, curvature=0.1, strength=0.05, norm=norm, score_bound=score_bound
    )
    X, z = np.ones((1, 50, 1)), np.full((1, 50), -5.0)
    other = X.copy()
    other[0, 0] = -1.0
    fit = replace(setting, score_bound=min(score_bound, 1e6))
    return setting, passive_release(X, z, fit), passive_release(other, z, fit)
