"""hdpvfl_mq/app/demo/evaluate: the models a run is compared with are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.app.demo.evaluate import reference_theta
from hdpvfl_mq.glm.families import family, unclipped
from schemas.model import LossSpec
from tests.lazily import Lazily

lm = Lazily("sklearn.linear_model")


ROWS = 400
PRECISE = {"tol": 1e-10, "max_iter": 5000}
REFERENCES = {
    "logistic": lambda: lm.LogisticRegression(C=1.0, **PRECISE),
    "poisson": lambda: lm.PoissonRegressor(alpha=1.0 / ROWS, **PRECISE),
    "gamma": lambda: lm.GammaRegressor(alpha=1.0 / ROWS, **PRECISE),
    "least_squares": lambda: lm.Ridge(alpha=0.5),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_equals_that_of_scikit_learn(name: str) -> None:
    dice = np.random.default_rng(5)
    X, model = dice.normal(size=(ROWS, 3)), REFERENCES[name]()
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
