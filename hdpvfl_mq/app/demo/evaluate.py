"""Test scores of the demo, computed outside the protocol by a holder of all the data.

It owns the comparison with the active party alone and with all data in one place. Only the local
demo and the experiments may use it, because no party of a real federation has these inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.glm.block import ColumnBlock, scale_rows
from hdpvfl_mq.glm.families import Family
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.methods.private_model.problem import FREE, Labels, Problem
from schemas.data import DataSettings

Matrix = NDArray[np.float64]


def score(models: Mapping[str, dict[str, Any]], features: Mapping[str, Matrix]) -> NDArray[Any]:
    """Theta of the joint model: each block times its weights, as the active party adds them up."""
    theta = np.zeros(len(next(iter(features.values()))))
    coefficients = {
        party: gamma
        for model in models.values()
        for party, gamma in model.get("coefficients", {}).items()
    }
    for party, model in models.items():
        block = _block(features[party], model)
        scores = block.scores(slice(0, block.rows), np.array(model["weights"])).expose()
        theta += coefficients.get(party, 1.0) * scores
    return theta


def _block(X: Matrix, model: dict[str, Any]) -> ColumnBlock:
    intercept = model["role"] == "active" and model["manifest"]["intercept"]
    order = np.arange(len(X))
    return ColumnBlock.align(X, order, intercept=intercept, scaled=model["scale_rows"])


def prepared(models: Mapping[str, dict[str, Any]], files: Mapping[str, Path]) -> dict[str, Any]:
    """Features by party, and labels, of the ids that all files share, in one order."""
    parts = {}
    for party, model in models.items():
        settings = DataSettings.model_validate_json(json.dumps(model["data"]))
        parts[party] = prepare(
            load_table(files[party]), settings, role=model["role"], to_score=True
        )
    orders = _orders({party: part.ids[0].tolist() for party, part in parts.items()})
    found: dict[str, Any] = {"features": {}, "y": None}
    for party, part in parts.items():
        rows = orders[party]
        found["features"][party] = np.asarray(part.X)[rows]
        if part.y is not None:
            found["y"] = part.y[rows]
    return found


def _orders(ids: Mapping[str, list[Any]]) -> dict[str, NDArray[np.int64]]:
    """Each party's rows of the ids that all share, sorted; equal columns are looked up once."""
    common = sorted(set.intersection(*map(set, ids.values())))
    if not common:
        raise DataError("the test files have no common id")
    known: list[tuple[list[Any], NDArray[np.int64]]] = []
    found = {}
    for party, mine in ids.items():
        rows = next((rows for other, rows in known if other == mine), None)
        if rows is None:
            place = {key: row for row, key in enumerate(mine)}
            rows = np.array([place[key] for key in common], dtype=np.int64)
            known.append((mine, rows))
        found[party] = rows
    return found


def compare(
    family: Family,
    models: Mapping[str, dict[str, Any]],
    train: dict[str, Any],
    test: dict[str, Any],
) -> dict[str, Any]:
    """Quality of the joint model, of the active party alone, and of all data in one place."""
    found = thetas(family, models, train, test)
    joint = quality(family, found.pop("joint"), test["y"])
    return {**joint, **{n: quality(family, theta, test["y"]) for n, theta in found.items()}}


def thetas(
    family: Family,
    models: Mapping[str, dict[str, Any]],
    train: dict[str, Any],
    test: dict[str, Any],
) -> dict[str, NDArray[Any]]:
    """Scores of the test rows: `joint`, `active_alone`, `central`."""
    active = next(party for party, model in models.items() if model["role"] == "active")
    found = {"joint": score(models, test["features"])}
    for name, parties in (("active_alone", [active]), ("central", list(models))):
        fitted = [
            np.hstack([_plain(models[p], part["features"][p]) for p in parties])
            for part in (train, test)
        ]
        found[name] = reference_theta(family, fitted[0], train["y"], fitted[1])
    return found


def _plain(model: dict[str, Any], X: Matrix) -> Matrix:
    """Row-scaled columns without the intercept, because the reference fits its own."""
    return scale_rows(X) if model["scale_rows"] else X


def reference_theta(family: Family, X: Matrix, y: NDArray[Any], X_test: Matrix) -> NDArray[Any]:
    """theta of a model of the same family, fitted without privacy and with a ridge of one row."""
    fitted, scored = (np.hstack([part, np.ones((len(part), 1))]) for part in (X, X_test))
    mean = family.encode(y).mean(keepdims=True)
    start = np.zeros(1) if family.is_zero_legal else family.link(mean)
    problem = Problem(
        X=fitted,
        labels=Labels(family=family, y=y),
        strengths=np.append(np.ones(X.shape[1]), FREE),
        given=np.repeat(start, len(X)),
    )
    theta: NDArray[Any] = scored @ problem.fit() + start
    return theta
