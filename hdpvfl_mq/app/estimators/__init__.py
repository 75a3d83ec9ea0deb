"""Estimators with scikit-learn's interface that run a whole federation in this process.

They own the conversion from arrays to parties and back; the production roles compute, add noise and
charge the ledgers.
"""

from hdpvfl_mq.app.estimators.classifier import VFLClassifier
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.app.estimators.regressor import VFLRegressor

__all__ = ["LedgerFolder", "VFLClassifier", "VFLRegressor"]
