"""Every loss x penalty on real data, trained by three parties, against the reference libraries.

All of them by the plain arithmetic of rounds, and by whole federations that exchange messages.
The table is printed at the end of the test run (see conftest.py). Row scaling is off and the ball
is large, since the libraries know neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references as ref
from arithmetic import LARGE_BALL, Problem, objective, predictions, train

from hdpvfl_mq.data.bundled import load_dataset
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.splits import deal
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import FAMILIES, family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.schedule import Schedule, StepSize
from schemas.methods import ActiveSide, PassiveSide
from schemas.model import LossName, LossSpec, PenaltySpec
from tests.federation import Federation, manifest

pytestmark = pytest.mark.seconds

FOLDER = Path(os.environ["HDPVFL_DATA"]) if os.environ.get("HDPVFL_DATA") else None
MAX_ROWS = 2000
ROUNDS = 60_000
NO_CLIP = 1e9

PENALTIES = {
    "none": PenaltySpec(name="none"),
    "l2": PenaltySpec(name="l2", strength=0.05),
    "l1": PenaltySpec(name="l1", strength=0.02),
    "elastic_net": PenaltySpec(name="elastic_net", strength=0.02, mixing=0.5),
}
# Two classes that no plane separates, so that "none" has a minimiser.
OVERLAPPING = (
    ("worst_texture", "worst_smoothness", "worst_symmetry"),
    ("mean_texture", "texture_error", "smoothness_error", "symmetry_error", "mean_smoothness"),
)


@dataclass(frozen=True)
class Case:
    """A loss, a data set, how steep the loss gets on it, and the library's answer."""

    loss: LossSpec
    dataset: str
    curvature: float
    reference: Callable[[np.ndarray, np.ndarray, PenaltySpec], ref.Reference]
    columns: tuple[tuple[str, ...], tuple[str, ...]] | None = None


def spec(name: LossName, **fields: float) -> LossSpec:
    return LossSpec(name=name, residual_clip=NO_CLIP, **fields)


WIDE = {"label_low": -50.0, "label_high": 50.0}
CASES = [
    Case(spec("logistic"), "breast", 0.25, ref.logistic, OVERLAPPING),
    Case(spec("bernoulli"), "breast", 0.25, ref.bernoulli, OVERLAPPING),
    Case(spec("squared_hinge"), "breast", 2.0, ref.squared_hinge, OVERLAPPING),
    Case(spec("least_squares", **WIDE), "diabetes", 2.0, lambda *a: ref.squares(*a, half=False)),
    Case(spec("least_squares", **WIDE), "meps", 2.0, lambda *a: ref.squares(*a, half=False)),
    Case(spec("normal", **WIDE), "diabetes", 1.0, lambda *a: ref.squares(*a, half=True)),
    Case(spec("huber", **WIDE, huber_c=1.0), "diabetes", 1.0, lambda *a: ref.huber(*a, c=1.0)),
    Case(spec("poisson", label_high=1e3), "randhie", 12.0, ref.poisson),
    Case(spec("poisson", label_high=1e3), "dvisits", 2.0, ref.poisson),
    Case(spec("gamma", label_high=1e3), "diabetes", 2.0, ref.gamma),
    Case(spec("gamma", label_low=1e-4, label_high=1e3), "meps", 20.0, ref.gamma),
    Case(
        spec("gamma_canonical", label_high=1e3, theta_min=0.15),
        "diabetes",
        12.0,
        ref.gamma_canonical,
    ),
]


@cache
def rows_of(
    dataset: str, loss: LossName, columns: tuple[tuple[str, ...], tuple[str, ...]] | None
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Standardised matrices of one active and two passive parties, rows in the order of ids."""
    data = load_dataset(dataset, folder=FOLDER)
    tables = [data.active, *deal(data.passive, 2)]
    chosen = [set(columns[0]), set(columns[1]), set(columns[1])] if columns else [set()] * 3
    parts = []
    for table, names in zip(tables, chosen, strict=True):
        kept = [n for n in table.names if n in ("id", "y") or not names or n in names]
        role = "active" if "y" in kept else "passive"
        part = table.select(kept)
        parts.append(prepare(part, data.settings(part, FAMILIES[loss].label_kind), role=role))
    orders = [np.argsort([int(cell) for cell in part.ids[0].tolist()]) for part in parts]
    matrices = tuple(p.X[o][:MAX_ROWS] for p, o in zip(parts, orders, strict=True))
    assert parts[0].y is not None
    return matrices, parts[0].y[orders[0]][:MAX_ROWS]


def blocks_of(matrices: tuple[np.ndarray, ...]) -> list[ColumnBlock]:
    order = np.arange(len(matrices[0]))
    return [
        ColumnBlock.align(X, order, intercept=index == 0, scaled=False)
        for index, X in enumerate(matrices)
    ]


def joined(weights: list[np.ndarray]) -> np.ndarray:
    """Our weights in the libraries' order: all coefficients, then the intercept."""
    return np.concatenate([weights[0][:-1], *weights[1:], weights[0][-1:]])


def parted(weights: np.ndarray, blocks: list[ColumnBlock]) -> list[np.ndarray]:
    ends = np.cumsum([block.columns - int(block.intercept) for block in blocks])
    active, *passives = np.split(weights[:-1], ends[:-1])
    return [np.append(active, weights[-1]), *passives]


def step_for(matrices: tuple[np.ndarray, ...], curvature: float, spec: PenaltySpec) -> StepSize:
    """Nearly 2 / L, where steps still come closer: half as many rounds as with 1 / L."""
    design = np.hstack([*matrices, np.ones((len(matrices[0]), 1))])
    steepest = curvature * np.linalg.eigvalsh(design.T @ design / len(design)).max()
    return StepSize(1.8 / (steepest + spec.strength))


def settled(problem: Problem, step: StepSize) -> tuple[list[np.ndarray], int]:
    """The weights at which nothing moves any more, and how many rounds that took."""
    rows = problem.response.rows
    return train(problem, Schedule(rows, rows, ROUNDS), step)


def compare(problem: Problem, found: ref.Reference, ours: list[np.ndarray], title: str) -> str:
    """A line of the table, if the differences are as small as they must be."""
    theirs = parted(found.weights, list(problem.blocks))
    weight_gap = _relative(joined(ours), found.weights)
    means = [predictions(problem, weights) for weights in (ours, theirs)]
    prediction_gap = _relative(*means)
    objectives = [np.array([objective(problem, weights)]) for weights in (ours, theirs)]
    objective_gap = _relative(*objectives)
    assert weight_gap < 1e-3
    assert prediction_gap < 1e-3
    assert objective_gap < 1e-6
    return (
        f"{title}{found.library:<28}{weight_gap:<10.0e}{prediction_gap:<13.0e}{objective_gap:.0e}"
    )


def _relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / max(1e-9, np.linalg.norm(theirs)))


def run(case: Case, penalty: PenaltySpec) -> str:
    solved = solve(case, penalty)
    return compare(solved.problem, solved.found, solved.ours, title_of(case, penalty))


@dataclass(frozen=True)
class Solved:
    """A problem, the library's answer, and ours by plain arithmetic."""

    problem: Problem
    found: ref.Reference
    step: StepSize
    ours: list[np.ndarray]
    rounds: int


@cache
def solve(case: Case, penalty: PenaltySpec) -> Solved:
    matrices, y = rows_of(case.dataset, case.loss.name, case.columns)
    found = case.reference(np.hstack(matrices), y, penalty)
    loss = LossSpec(**{**dict(case.loss), "huber_c": found.huber_c or case.loss.huber_c})
    problem = Problem(blocks_of(matrices), Response(family(loss), y), penalty)
    step = step_for(matrices, case.curvature, penalty)
    return Solved(problem, found, step, *settled(problem, step))


def title_of(case: Case, penalty: PenaltySpec) -> str:
    return f"{case.loss.name:<16}{penalty.name:<13}{case.dataset:<10}"


# Whole federations take thousands of rounds to settle, so `make test` has every penalty and several
# losses; that a federation computes what `train` does, for every loss and penalty, is shown by
# tests/contracts/test_federation_arithmetic.py.
FEDERATED = {
    ("logistic", "breast", "l2"),
    ("normal", "diabetes", "elastic_net"),
    ("gamma", "diabetes", "l1"),
    ("least_squares", "meps", "none"),
}
SECOND = {("least_squares", "diabetes"), ("poisson", "dvisits"), ("gamma", "meps")}
PAIRS = [(case, penalty) for case in CASES for penalty in PENALTIES]
# Ill-conditioned without a penalty: thousands of steps, for make test-slow.
LONG = {(loss, "diabetes", "none") for loss in ("gamma_canonical", "gamma", "huber")}
TRAINED = {
    (c.loss.name, c.dataset, p) for c, p in PAIRS if (c.loss.name, c.dataset) not in SECOND
} - LONG


def pairs(quick: set[tuple[str, str, str]]) -> list[Any]:
    names = [(case.loss.name, case.dataset, penalty) for case, penalty in PAIRS]
    return [
        pytest.param(*pair, id="-".join(name), marks=() if name in quick else pytest.mark.slow)
        for pair, name in zip(PAIRS, names, strict=True)
    ]


@pytest.mark.parametrize(("case", "penalty"), pairs(FEDERATED))
def test_a_whole_federation_reaches_it_too(
    case: Case, penalty: str, record_property: Callable[[str, object], None]
) -> None:
    """Roles, messages, journals, ledgers and entity resolution, in simulated time."""
    if case.dataset == "dvisits" and FOLDER is None:
        pytest.skip("dvisits needs HDPVFL_DATA")
    chosen = PENALTIES[penalty]
    solved = solve(case, chosen)
    problem, step = solved.problem, solved.step
    matrices, y = rows_of(case.dataset, case.loss.name, case.columns)
    federation = Federation(
        manifest(
            guarantee="none",
            budget=None,
            scale_rows=False,
            loss=problem.response.family.spec,
            penalty=chosen,
            epochs=solved.rounds,
            batch_rows=problem.response.rows,
            active=ActiveSide(step_size=step.eta, weight_norm=LARGE_BALL),
            passive=PassiveSide(step_size=step.eta, weight_norm=LARGE_BALL),
        ),
        federated(matrices, y),
    )
    weights = federation.weights(federation.simulate())
    ours = [weights[party] for party in ("bank", "shop", "telco")]
    for mine, theirs in zip(ours, solved.ours, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)  # rows in another order
    line = compare(problem, solved.found, ours, title_of(case, chosen))
    record_property("reference", f"{line}   federation, {solved.rounds} rounds")


def federated(matrices: tuple[np.ndarray, ...], y: np.ndarray) -> dict[str, Table]:
    ids, tables = np.arange(len(y)), {}
    for name, X in zip(("bank", "shop", "telco"), matrices, strict=True):
        label = {"y": y} if name == "bank" else {}
        columns = {f"{name}_{number}": column for number, column in enumerate(X.T)}
        tables[name] = Table.of({"id": ids, **label, **columns})
    return tables


@pytest.mark.parametrize(("case", "penalty"), pairs(TRAINED))
def test_three_parties_reach_what_the_library_reaches(
    case: Case, penalty: str, record_property: Callable[[str, object], None]
) -> None:
    if case.dataset == "dvisits" and FOLDER is None:
        pytest.skip("dvisits needs HDPVFL_DATA")
    record_property("reference", run(case, PENALTIES[penalty]))


@pytest.mark.parametrize("penalty", ["l2", "elastic_net"])
def test_all_thirty_columns_of_breast(
    penalty: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("reference", run(replace(CASES[0], columns=None), PENALTIES[penalty]))


def test_every_loss_is_compared() -> None:
    assert {case.loss.name for case in CASES} == set(FAMILIES)


def test_sample_weights_and_exposure(record_property: Callable[[str, object], None]) -> None:
    matrices, y = rows_of("randhie", "poisson", None)
    rng = np.random.default_rng(29)
    weights, offset = rng.uniform(0.2, 2.0, len(y)), np.log(rng.uniform(0.5, 2.0, len(y)))
    found = ref.weighted_poisson(np.hstack(matrices), y, weights, offset)
    loss = family(spec("poisson", label_high=1e3, weight_max=2.0, offset_max=1.0))
    response = Response(loss, y, weights=weights, offset=offset)
    problem = Problem(blocks_of(matrices), response, PENALTIES["none"])
    step = step_for(matrices, 24.0, PENALTIES["none"])
    title = f"{'poisson, sample weights, exposure':<39}"
    ours, _ = settled(problem, step)
    record_property("reference", compare(problem, found, ours, title))
