"""scikit-learn's own checks over both estimators; what noise contradicts has its reason here."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from hdpvfl_mq import VFLClassifier, VFLRegressor

pytestmark = pytest.mark.seconds

NOISE: dict[str, str] = {}  # none at this version: poor_score is declared by the tags


@parametrize_with_checks(
    [
        VFLClassifier(random_state=0),
        VFLRegressor(random_state=0),
    ],
    expected_failed_checks=lambda estimator: NOISE,
)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator(estimator, check):
    check(estimator)
