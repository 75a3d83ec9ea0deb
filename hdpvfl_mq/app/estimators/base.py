"""Base class of both estimators: parameters, columns, training runs, scores and their cost.

It owns the fitted attributes; the classifier and the regressor own the meaning of labels.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from hdpvfl_mq.app.demo.evaluate import score
from hdpvfl_mq.app.estimators.coefficients import coefficients
from hdpvfl_mq.app.estimators.columns import Matrix, Standardised, dealt, joined
from hdpvfl_mq.app.estimators.fitting import (
    ALIGNMENT,
    FittedRun,
    Label,
    composed,
    party_names,
    train,
)
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import FAMILIES, Family, family
from hdpvfl_mq.methods.recommend import delta_warning, penalty_named, recommend
from hdpvfl_mq.runtime.settings import check_settings
from schemas.config import RunManifest
from schemas.methods import Guarantee, PrivateModel, with_options
from schemas.model import LabelKind, LossName, LossSpec, PenaltyName
from schemas.privacy import Budget, Release

SECRET_BYTES = 32
ROWS_MIN = 10  # a private model learns nothing from fewer rows


class VFLEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Splits columns between parties, which train one model together in this process.

    Parameters are documented on the two estimators.
    """

    loss: LossName
    penalty: PenaltyName
    guarantee: Guarantee
    epsilon: float
    delta: float
    columns: Any
    disclosed_rows: int
    random_state: Any
    ledger: LedgerFolder | None

    # -- data ---------------------------------------------------------------------------------

    def _fit_data(self, X: Any, y: Any, **checks: Any) -> tuple[Matrix, Any]:
        """Check the data and assign the columns to parties."""
        self._check_parameters()
        whole, parties = joined(X)
        matrix, labels = validate_data(self, whole, y, dtype=np.float64, **checks)
        if self.guarantee == "sound" and len(matrix) < ROWS_MIN:
            raise ValueError(f"n_samples = {len(matrix)}: give {ROWS_MIN} rows or more")
        if self.guarantee != "none" and (text := delta_warning(float(self.delta), len(matrix))):
            warnings.warn(text, UserWarning, stacklevel=3)
        if parties is not None and self.columns is not None:
            raise ValueError(
                "columns: leave it out where X is a list of frames, one for each party"
            )
        if parties is None:
            names = getattr(self, "feature_names_in_", None)
            parties = dealt(self.columns, matrix.shape[1], names)
        self.parts_ = [Standardised.fitted(matrix, columns) for columns in parties]
        self.parties_ = party_names(len(parties))
        return matrix, labels

    def _check_parameters(self) -> None:
        """ValueError names a wrong parameter; a misspelt guarantee must never fit."""
        for name, choices in (("guarantee", Guarantee), ("penalty", PenaltyName)):
            if getattr(self, name) not in get_args(choices):
                listed = ", ".join(get_args(choices))
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {listed}")
        budget = {"epsilon": _plain(self.epsilon), "delta": _plain(self.delta)}
        disclosed = {"disclosed_rows": _plain(self.disclosed_rows)}
        try:
            check_settings(Budget, budget, type(self).__name__)
            check_settings(PrivateModel, disclosed, type(self).__name__)
        except SettingsError as wrong:
            raise ValueError(str(wrong)) from None

    def _family(self, *kinds: LabelKind) -> type[Family]:
        """The family of the loss; it must accept labels of one of these kinds."""
        fitting = [name for name, each in FAMILIES.items() if each.label_kind in kinds]
        if self.loss not in fitting:
            raise ValueError(f"loss={self.loss!r}: choose one of {', '.join(fitting)}")
        return FAMILIES[self.loss]

    # -- runs ---------------------------------------------------------------------------------

    def _secrets(self, count: int) -> list[bytes]:
        """A secret for each run; one made from `random_state` is repeatable and hides nothing."""
        if self.random_state is None:
            return [os.urandom(SECRET_BYTES) for _ in range(count)]
        dice = check_random_state(self.random_state)
        return [dice.bytes(SECRET_BYTES) for _ in range(count)]

    def _train_each(
        self, X: Matrix, labels: Iterable[Label], loss: LossSpec, secrets: list[bytes]
    ) -> list[FittedRun]:
        """One run for each label; all use the noised X'X of the first, which has paid for it."""
        runs: list[FittedRun] = []
        for label, secret in zip(labels, secrets, strict=True):
            grams = runs[0].grams if runs else {}
            runs.append(self._train(X, label, loss, secret, grams))
        return runs

    def _train(
        self,
        X: Matrix,
        label: Label,
        loss: LossSpec,
        secret: bytes,
        grams: Mapping[str, Release] = MappingProxyType({}),
    ) -> FittedRun:
        """Train one run of the federation."""
        if self.random_state is not None:
            # The weights follow from X'X too, and its noise from the labels of another run.
            shared = b"".join(grams[party].tensor.digest for party in sorted(grams))
            secret = self._of_this_fit(X, label, loss, secret, shared)
        run = "fit-" + hashlib.sha256(b"run name" + secret).hexdigest()[:16]
        manifest = self._manifest(run, loss, secret)
        return train(
            manifest, X, self.parts_, label, secret=secret, ledger=self.ledger, grams=grams
        )

    def _of_this_fit(
        self, X: Matrix, label: Label, loss: LossSpec, secret: bytes, shared: bytes
    ) -> bytes:
        """A repeatable secret for these data and parameters only.

        Folds of a grid search share `random_state`. The same noise on two of them would cancel in
        their difference, and one ledger would see two payloads under one release id.
        """
        chosen = (self.penalty, self.guarantee, self.epsilon, self.delta, self.disclosed_rows)
        keyed = hashlib.blake2b(f"{chosen} {loss!r}".encode(), key=secret, digest_size=SECRET_BYTES)
        for part in self.parts_:
            keyed.update(np.ascontiguousarray(X[:, list(part.columns)]).data)
        keyed.update(np.ascontiguousarray(label.values).data)
        keyed.update(shared)
        return keyed.digest()

    def _manifest(self, run: str, loss: LossSpec, secret: bytes) -> RunManifest:
        active, *passives = self.parties_
        parties = (active, tuple(passives))
        budget = Budget(epsilon=float(self.epsilon), delta=float(self.delta))
        base = recommend(run, parties, self.guarantee, budget, loss, penalty=self.penalty)
        method = base.method
        if self.disclosed_rows:
            try:
                method = with_options(method, {"disclosed_rows": int(self.disclosed_rows)})
            except ValueError as unknown:
                other = "" if family(loss).is_zero_legal else f", a loss other than {loss.name}"
                raise ValueError(
                    f"{unknown}; the private model has: guarantee='sound', penalty='l2'{other}"
                ) from None
        changes = {
            "alignment": ALIGNMENT,
            "method": method,
            "penalty": penalty_named(base, self.penalty),
            "seed": int.from_bytes(hashlib.sha256(b"seed" + secret).digest()[:7], "big"),
        }
        return RunManifest(**{**dict(base), **changes})

    # -- scores -------------------------------------------------------------------------------

    def _theta(self, X: Any) -> NDArray[np.float64]:
        """The joint score of every row, one column for each run."""
        check_is_fitted(self)
        whole, _ = joined(X)
        matrix = validate_data(self, whole, dtype=np.float64, reset=False)
        features = {
            party: part.apply(matrix)
            for party, part in zip(self.parties_, self.parts_, strict=True)
        }
        return np.column_stack([score(run.models, features) for run in self.runs_])

    def _publish(self, runs: list[FittedRun]) -> None:
        """Set the public fitted attributes."""
        self.runs_ = runs
        described = [coefficients(run.models, self.parts_) for run in runs]
        self.coef_ = np.vstack([each.coef for each in described])
        self.coef_std_ = np.vstack([each.std for each in described])
        self.intercept_ = np.array([each.intercept for each in described])
        self.history_ = [run.history for run in runs]
        self.privacy_ = {
            party: {
                "runs": len(runs),
                **composed([run.privacy[party] for run in runs]),
                "conditional_on_preprocessing": True,
            }
            for party in self.parties_
        }


def _plain(value: Any) -> Any:
    """Convert a numpy number, as a grid search passes it, to a Python number."""
    return value.item() if isinstance(value, np.generic) else value
