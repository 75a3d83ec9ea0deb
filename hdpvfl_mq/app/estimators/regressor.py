"""The regressor: real labels, counts or positive amounts.

It owns the range and the unit of labels; fitting and scores are in base.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.estimators.base import VFLEstimator
from hdpvfl_mq.app.estimators.fitting import Label
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.glm.families import family
from schemas.methods import Guarantee
from schemas.model import LossName, LossSpec, PenaltyName

REAL_SPREAD = 3.0  # standardised labels are clipped at this many deviations


class VFLRegressor(RegressorMixin, VFLEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Several companies train one regression, each with its own columns and a privacy guarantee.

    Parameters are those of `VFLClassifier`, with these differences.

    Parameters
    ----------
    loss : "least_squares", "huber", "poisson", "gamma" or "normal"
    label_range : the public (lowest, highest) label; labels outside are clipped. None takes both
        numbers from the labels, and the guarantee is then conditional on them

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from hdpvfl_mq import VFLRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VFLRegressor(epsilon=1.0, delta=1e-3, label_range=(25, 346), random_state=0)
    >>> model.fit(X, y).predict(X[:2]).shape
    (2,)
    """

    def __init__(  # noqa: PLR0913, PLR0917 - an estimator's parameters are its constructor's
        self,
        loss: LossName = "least_squares",
        penalty: PenaltyName = "l2",
        guarantee: Guarantee = defaults.GUARANTEE,
        epsilon: float = defaults.EPSILON,
        delta: float = defaults.DELTA,
        columns: Any = None,
        disclosed_rows: int = 0,
        random_state: Any = None,
        ledger: LedgerFolder | None = None,
        label_range: tuple[float, float] | None = None,
    ) -> None:
        self.loss, self.penalty, self.guarantee = loss, penalty, guarantee
        self.epsilon, self.delta = epsilon, delta
        self.columns, self.disclosed_rows = columns, disclosed_rows
        self.random_state, self.ledger = random_state, ledger
        self.label_range = label_range

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.guarantee != "none"  # noise, on purpose
        return tags

    def fit(self, X: Any, y: Any) -> VFLRegressor:
        """Train; `X` is one matrix or a list with each party's frame, the active party's first."""
        matrix, labels = self._fit_data(X, y, y_numeric=True)
        labels = np.asarray(labels, dtype=np.float64)
        label, loss = self._label(labels)
        self.label_centre_, self.label_scale_ = label.centre, label.scale
        [secret] = self._secrets(1)
        self._publish([self._train(matrix, label, loss, secret)])
        return self

    def _label(self, y: NDArray[np.float64]) -> tuple[Label, LossSpec]:
        """The label in the unit of the loss, and the loss with its public range."""
        kind = self._family("real", "count", "positive").label_kind
        low, high = self.label_range or (float(y.min()), float(y.max()))
        if kind == "real":
            centre = (low + high) / 2.0 if self.label_range else float(y.mean())
            spread = (high - low) / (2.0 * REAL_SPREAD) if self.label_range else float(y.std())
            scale = spread if spread > 0.0 else 1.0
            values = np.clip((y - centre) / scale, -REAL_SPREAD, REAL_SPREAD)
            return Label(values, kind, centre, scale), LossSpec(name=self.loss)
        if low < 0.0 or (kind == "positive" and low <= 0.0):
            needed = "positive" if kind == "positive" else "0 or more"
            raise ValueError(f"loss={self.loss!r} needs labels that are {needed}")
        if kind == "count":
            return Label(y, kind), LossSpec(name=self.loss, label_high=max(high, 1.0))
        scale = float(np.sqrt(low * high))  # the middle of the range becomes 1
        spec = LossSpec(name=self.loss, label_low=low / scale, label_high=high / scale)
        return Label(y / scale, kind, 0.0, scale), spec

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected label of every row."""
        theta = self._theta(X)[:, 0]
        mean = family(LossSpec(name=self.loss)).mean(theta)
        return np.asarray(mean * self.label_scale_ + self.label_centre_)
