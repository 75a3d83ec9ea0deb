"""Base class of both estimators: parameters, columns, training runs, scores and their cost.

It owns the fitted attributes; the classifier and the regressor own the meaning of labels.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from hdpvfl_mq.app.demo.evaluate import score
from hdpvfl_mq.app.estimators.coefficients import coefficients
from hdpvfl_mq.app.estimators.columns import Matrix, Standardised, as_frames, dealt
from hdpvfl_mq.app.estimators.fitting import (
    ALIGNMENT,
    FittedRun,
    Label,
    composed,
    party_names,
    train,
)
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.glm.families import FAMILIES, Family
from hdpvfl_mq.methods.recommend import recommend
from schemas.config import RunManifest
from schemas.methods import Guarantee, PrivateModel
from schemas.model import LabelKind, LossName, LossSpec, PenaltyName, PenaltySpec
from schemas.privacy import Budget

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

    def _joined(self, X: Any) -> tuple[Any, list[list[int]] | None]:
        """One matrix, and the columns of each party if `X` is a list of frames."""
        frames = as_frames(X)
        if frames is None:
            return X, None
        arrays = [np.asarray(frame, dtype=np.float64) for frame in frames]
        if len({len(array) for array in arrays}) != 1:
            raise ValueError("every party's frame needs the same rows, in the same order")
        ends = np.cumsum([array.shape[1] for array in arrays]).tolist()
        parties = [
            list(range(end - array.shape[1], end)) for end, array in zip(ends, arrays, strict=True)
        ]
        return np.hstack(arrays), parties

    def _fit_data(self, X: Any, y: Any, **checks: Any) -> tuple[Matrix, Any]:
        """Check the data and assign the columns to parties."""
        joined, parties = self._joined(X)
        matrix, labels = validate_data(self, joined, y, dtype=np.float64, **checks)
        if self.guarantee == "sound" and len(matrix) < ROWS_MIN:
            raise ValueError(f"n_samples = {len(matrix)}: give {ROWS_MIN} rows or more")
        if parties is None:
            names = getattr(self, "feature_names_in_", None)
            parties = dealt(self.columns, matrix.shape[1], names)
        self.parts_ = [Standardised.fitted(matrix, columns) for columns in parties]
        self.parties_ = party_names(len(parties))
        return matrix, labels

    def _family(self, *kinds: LabelKind) -> type[Family]:
        """The family of the loss; it must accept labels of one of these kinds."""
        fitting = [name for name, each in FAMILIES.items() if each.label_kind in kinds]
        if self.loss not in fitting:
            raise ValueError(f"loss={self.loss!r} does not fit; take one of {', '.join(fitting)}")
        return FAMILIES[self.loss]

    # -- runs ---------------------------------------------------------------------------------

    def _secrets(self, count: int) -> list[bytes]:
        """A secret for each run; one made from `random_state` is repeatable and hides nothing."""
        if self.random_state is None:
            return [os.urandom(SECRET_BYTES) for _ in range(count)]
        dice = check_random_state(self.random_state)
        return [dice.bytes(SECRET_BYTES) for _ in range(count)]

    def _train(self, X: Matrix, label: Label, loss: LossSpec, secret: bytes) -> FittedRun:
        """Train one run of the federation."""
        run = "fit-" + hashlib.sha256(b"run name" + secret).hexdigest()[:16]
        manifest = self._manifest(run, loss, secret)
        return train(manifest, X, self.parts_, label, secret=secret, ledger=self.ledger)

    def _manifest(self, run: str, loss: LossSpec, secret: bytes) -> RunManifest:
        active, *passives = self.parties_
        budget = Budget(epsilon=float(self.epsilon), delta=float(self.delta))
        base = recommend(run, (active, tuple(passives)), self.guarantee, budget, loss)
        method = base.method
        if self.disclosed_rows:
            if not isinstance(method, PrivateModel):
                raise ValueError("disclosed_rows needs guarantee='sound' and another loss")
            method = PrivateModel(**{**dict(method), "disclosed_rows": self.disclosed_rows})
        changes = {
            "alignment": ALIGNMENT,
            "method": method,
            "penalty": PenaltySpec(name=self.penalty, strength=base.penalty.strength),
            "seed": int.from_bytes(hashlib.sha256(b"seed" + secret).digest()[:7], "big"),
        }
        return RunManifest(**{**dict(base), **changes})

    # -- scores -------------------------------------------------------------------------------

    def _theta(self, X: Any) -> NDArray[np.float64]:
        """The joint score of every row, one column for each run."""
        check_is_fitted(self)
        joined, _ = self._joined(X)
        matrix = validate_data(self, joined, dtype=np.float64, reset=False)
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
