"""Estimators in the manner of scikit-learn that run a whole federation in this process.

They own the way from arrays to parties and back; what is computed, noised and charged is the
business of the production roles.
"""

from hdpvfl_mq.app.estimators.classifier import VFLClassifier
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.app.estimators.regressor import VFLRegressor

__all__ = ["LedgerFolder", "VFLClassifier", "VFLRegressor"]
