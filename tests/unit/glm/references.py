"""The same minimisers from scikit-learn, statsmodels or, if neither has the pair, scipy.

It owns the translation of our objective, mean loss + R, into that of each library; it uses none of
this project's formulas. Every function returns the coefficients and then the intercept.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.model import PenaltySpec
from tests.lazily import Lazily

lm, svm, optimize = map(Lazily, ("sklearn.linear_model", "sklearn.svm", "scipy.optimize"))


FAR_INTERCEPT = 300.0  # LinearSVC penalises the intercept; this far out it weighs nothing.


@dataclass(frozen=True)
class Reference:
    """A library's answer and its name for the table."""

    library: str
    weights: np.ndarray
    huber_c: float = 0.0


def _statsmodels() -> Any:
    """Imported late, for its size; without `statsmodels.api`, which imports all of statsmodels."""
    return importlib.import_module("statsmodels.genmod.generalized_linear_model")


def _with_constant(X: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(X)), X])


def _coefficients(model: object) -> np.ndarray:
    return np.append(np.ravel(model.coef_), model.intercept_)  # type: ignore[attr-defined]  # fitted


def _parts(spec: PenaltySpec) -> tuple[float, float]:
    """R as l1 |w|_1 + l2 / 2 |w|^2."""
    match spec.name:
        case "l2":
            return 0.0, spec.strength
        case "l1":
            return spec.strength, 0.0
        case "elastic_net":
            return spec.strength, spec.strength * spec.mixing
        case _:
            return 0.0, 0.0


def logistic(X: np.ndarray, y: np.ndarray, spec: PenaltySpec) -> Reference:
    l1, l2 = _parts(spec)
    if l1 + l2 == 0.0:
        model = lm.LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    elif l1 == 0.0:
        model = lm.LogisticRegression(C=1.0 / (len(y) * l2), tol=1e-10, max_iter=10_000)
    else:
        model = lm.LogisticRegression(
            C=1.0 / (len(y) * (l1 + l2)),
            l1_ratio=l1 / (l1 + l2),
            solver="saga",
            tol=1e-9,
            max_iter=20_000,
            random_state=0,
        )
    return Reference("sklearn LogisticRegression", _coefficients(model.fit(X, y)))


def squares(X: np.ndarray, y: np.ndarray, spec: PenaltySpec, *, half: bool) -> Reference:
    """scikit-learn minimises half the mean square; least squares has twice that, Normal that."""
    l1, l2 = (part * (1.0 if half else 0.5) for part in _parts(spec))
    if l1 + l2 == 0.0:
        model = lm.LinearRegression()
    elif l1 == 0.0:
        model = lm.Ridge(alpha=len(y) * l2)
    elif l2 == 0.0:
        model = lm.Lasso(alpha=l1, tol=1e-12, max_iter=100_000)
    else:
        model = lm.ElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), tol=1e-12, max_iter=100_000)
    return Reference(f"sklearn {type(model).__name__}", _coefficients(model.fit(X, y)))


def huber(X: np.ndarray, y: np.ndarray, spec: PenaltySpec, c: float) -> Reference:
    """HuberRegressor fits a scale s; given s it minimises ours with c = epsilon s."""
    l1, l2 = _parts(spec)
    if l1 > 0.0:
        return _scipy(X, y, spec, lambda t, v: _huber_value(t - v, c))
    epsilon, scale = 1.35, c / 1.35
    for _ in range(20):
        model = lm.HuberRegressor(
            epsilon=epsilon, alpha=len(y) * l2 / scale, tol=1e-12, max_iter=100_000
        ).fit(X, y)
        if abs(model.scale_ - scale) < 1e-12:
            break
        scale = model.scale_
    return Reference("sklearn HuberRegressor", _coefficients(model), huber_c=epsilon * scale)


def squared_hinge(X: np.ndarray, y: np.ndarray, spec: PenaltySpec) -> Reference:
    l1, l2 = _parts(spec)
    if (l1 > 0.0) == (l2 > 0.0):
        sign = np.where(y > 0, 1.0, -1.0)
        return _scipy(X, sign, spec, _hinge_value)
    model = svm.LinearSVC(
        penalty="l2" if l2 else "l1",
        loss="squared_hinge",
        dual=False,
        C=1.0 / (len(y) * (l1 + l2)),
        intercept_scaling=FAR_INTERCEPT,
        tol=1e-10,
        max_iter=200_000,
        random_state=0,
    )
    return Reference("sklearn LinearSVC", _coefficients(model.fit(X, y)))


def poisson(X: np.ndarray, y: np.ndarray, spec: PenaltySpec) -> Reference:
    l1, l2 = _parts(spec)
    if l1 == 0.0:
        model = lm.PoissonRegressor(alpha=l2, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
        return Reference("sklearn PoissonRegressor", _coefficients(model.fit(X, y)))
    # statsmodels' own l1 fit stops above the minimum here, by 2e-3 of the objective.
    return _scipy(X, y, spec, lambda t, v: (np.exp(t) - v * t, np.exp(t) - v))


def gamma(X: np.ndarray, y: np.ndarray, spec: PenaltySpec) -> Reference:
    """GammaRegressor's half deviance is our loss up to a constant."""
    l1, l2 = _parts(spec)
    if l1 == 0.0:
        model = lm.GammaRegressor(alpha=l2, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
        return Reference("sklearn GammaRegressor", _coefficients(model.fit(X, y)))
    return _scipy(X, y, spec, lambda t, v: (t + v * np.exp(-t), 1.0 - v * np.exp(-t)))


def gamma_canonical(X: np.ndarray, y: np.ndarray, spec: PenaltySpec) -> Reference:
    """statsmodels' inverse-power link has the opposite sign of the canonical one."""
    if spec.name == "none":
        families = _statsmodels().families
        found = _glm(X, y, families.Gamma(families.links.InversePower()))
        return Reference(found.library, -found.weights)
    return _scipy(X, y, spec, _canonical_value, start=-1.0 / y.mean())


def bernoulli(X: np.ndarray, y: np.ndarray, spec: PenaltySpec) -> Reference:
    if spec.name == "none":
        return _glm(X, y, _statsmodels().families.Binomial())
    return logistic(X, y, spec)


def weighted_poisson(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray, offset: np.ndarray
) -> Reference:
    """Sample weights and exposure."""
    sm = _statsmodels()
    model = sm.GLM(
        y, _with_constant(X), family=sm.families.Poisson(), freq_weights=weights, offset=offset
    )
    return Reference("statsmodels GLM", np.roll(model.fit(tol=1e-12).params, -1))


def _glm(X: np.ndarray, y: np.ndarray, family: object) -> Reference:
    sm = _statsmodels()
    model = sm.GLM(y, _with_constant(X), family=family)
    return Reference("statsmodels GLM", np.roll(model.fit(tol=1e-12, maxiter=200).params, -1))


def _scipy(X, y, spec, loss, start=0.0):
    """L-BFGS on the positive and negative parts of w, which makes the l1 penalty smooth."""
    l1, l2 = _parts(spec)
    columns = X.shape[1]

    def value(z):
        w, b = z[:columns] - z[columns:-1], z[-1]
        losses, slopes = loss(X @ w + b, y)
        gradient = X.T @ slopes / len(y) + l2 * w
        total = losses.mean() + l1 * z[:-1].sum() + l2 / 2.0 * w @ w
        return total, np.concatenate([gradient + l1, -gradient + l1, [slopes.mean()]])

    bounds = [(0.0, None)] * (2 * columns) + [(None, None)]
    z = np.append(np.zeros(2 * columns), start)
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 50}
    for _ in range(5):  # until another start from there finds nothing lower
        before = z
        z = optimize.minimize(
            value, z, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x
        if np.abs(z - before).max() < 1e-8:
            break
    return Reference("scipy L-BFGS-B", np.append(z[:columns] - z[columns:-1], z[-1]))


def _huber_value(d: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray]:
    inner = np.abs(d) <= c
    return np.where(inner, d * d / 2, c * np.abs(d) - c * c / 2), np.where(inner, d, c * np.sign(d))


def _hinge_value(theta: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gap = np.maximum(0.0, 1.0 - sign * theta)
    return gap**2, -2.0 * sign * gap


def _canonical_value(theta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    safe = np.minimum(theta, -1e-3)
    return -y * safe - np.log(-safe), -y - 1.0 / safe
