"""The classifier: one run for two classes, one run per class for more.

It owns classes, decisions and probabilities; fitting and scores are in base.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.estimators.base import VFLEstimator
from hdpvfl_mq.app.estimators.fitting import Label
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.glm.families import family
from schemas.methods import Guarantee
from schemas.model import LossName, LossSpec, PenaltyName


class VFLClassifier(ClassifierMixin, VFLEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Several companies train one classifier, each with its own columns and a privacy guarantee.

    The parties are the production roles, run in this process: they send each other the messages
    they would send over a network, with the same noise, and `predict` returns what the protocol
    would return.

    Parameters
    ----------
    loss : "logistic", "squared_hinge" or "bernoulli"
    penalty : "l2", "l1", "elastic_net" or "none"; with guarantee "sound", all but "l2" train by
        noised descent instead of the private model
    guarantee : "sound" (differential privacy, proved), "paper" (as published) or "none"
    epsilon, delta : the most that one fit may reveal about one row
    columns : the columns of each party, by name or position, the active party's first; None gives
        the first half to the active party and the rest to one passive party
    disclosed_rows : release exact scores of this many agreed rows instead of noised scores of all
        rows; the agreed rows count as disclosed
    random_state : None draws noise that nobody can repeat. A number makes a fit repeatable, and the
        noise then hides nothing from anybody who knows the number
    ledger : a `LedgerFolder` that every fit is charged to

    Attributes
    ----------
    classes_ : the classes; with more than two, each class has its own run and is charged for it,
        but for X'X, which all runs share
    coef_, intercept_ : the joint model in the units of the columns, for a row within the unit ball
    coef_std_ : the standard deviation that the noise adds to each coefficient
    privacy_ : for each party `epsilon` of this fit, `epsilon_lifetime` of all fits in its ledger,
        `delta`, `noise_std`, and `disclosed_rows`, which epsilon does not cover
    history_ : the active party's own loss, by run. Like its coefficients it is not private

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from hdpvfl_mq import VFLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = VFLClassifier(epsilon=1.0, delta=1e-3, random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape
    (2,)
    """

    def __init__(  # noqa: PLR0913, PLR0917 - an estimator's parameters are its constructor's
        self,
        loss: LossName = "logistic",
        penalty: PenaltyName = "l2",
        guarantee: Guarantee = defaults.GUARANTEE,
        epsilon: float = defaults.EPSILON,
        delta: float = defaults.DELTA,
        columns: Any = None,
        disclosed_rows: int = 0,
        random_state: Any = None,
        ledger: LedgerFolder | None = None,
    ) -> None:
        self.loss, self.penalty, self.guarantee = loss, penalty, guarantee
        self.epsilon, self.delta = epsilon, delta
        self.columns, self.disclosed_rows = columns, disclosed_rows
        self.random_state, self.ledger = random_state, ledger

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.guarantee != "none"  # noise, on purpose
        return tags

    def fit(self, X: Any, y: Any) -> VFLClassifier:
        """Train; `X` is one matrix or a list with each party's frame, the active party's first."""
        matrix, labels = self._fit_data(X, y)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y has one class only; a classifier needs samples of 2 classes")
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        loss = LossSpec(name=self._family("binary").name)
        secrets = self._secrets(len(positive))
        classes = [Label((codes == c).astype(np.float64), "binary") for c in positive]
        self._publish(self._train_each(matrix, classes, loss, secrets))
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The joint score of every row; with more than two classes, a column for each."""
        theta = self._theta(X)
        return theta[:, 0] if theta.shape[1] == 1 else theta

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest score."""
        theta = self.decision_function(X)
        chosen = (theta > 0.0).astype(np.int64) if theta.ndim == 1 else theta.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes; more than two are each against the rest, scaled to 1."""
        mean = family(LossSpec(name=self.loss)).mean(self._theta(X))
        if mean.shape[1] == 1:
            return np.column_stack([1.0 - mean[:, 0], mean[:, 0]])
        total = mean.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, mean / np.where(total > 0.0, total, 1.0), 1.0 / mean.shape[1])
