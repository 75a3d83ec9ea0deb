"""hdpvfl_mq/app/demo/evaluate: the models a run is compared with are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge

from hdpvfl_mq.app.demo.evaluate import reference_theta
from hdpvfl_mq.glm.families import family, unclipped
from schemas.model import LossSpec

ROWS = 400
PRECISE = {"tol": 1e-10, "max_iter": 5000}
REFERENCES = {
    "logistic": LogisticRegression(C=1.0, **PRECISE),
    "poisson": PoissonRegressor(alpha=1.0 / ROWS, **PRECISE),
    "gamma": GammaRegressor(alpha=1.0 / ROWS, **PRECISE),
    "least_squares": Ridge(alpha=0.5),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_equals_that_of_scikit_learn(name: str) -> None:
    dice = np.random.default_rng(5)
    X, model = dice.normal(size=(ROWS, 3)), REFERENCES[name]
    mean = np.exp(X @ [0.5, -0.3, 0.2] / 2.0)
    y = {
        "logistic": lambda: (dice.random(ROWS) < mean / (1.0 + mean)).astype(float),
        "poisson": lambda: dice.poisson(mean).astype(float),
        "gamma": lambda: dice.gamma(2.0, mean / 2.0),
        "least_squares": lambda: np.log(mean) + dice.normal(size=ROWS),
    }[name]()
    loss = family(unclipped(LossSpec(name=name)))
    model.fit(X, y)
    expected = model.decision_function(X) if name == "logistic" else loss.link(model.predict(X))
    assert reference_theta(loss, X, y, X) == pytest.approx(expected, abs=1e-4)
