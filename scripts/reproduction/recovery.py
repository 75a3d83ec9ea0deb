"""The share of the gain of central training that a private run recovers, with prediction.

It owns the grid of data sets, partners, modes and budgets; the runs are federations of production
roles. `alone` and `central` are scikit-learn's logistic regression with C = 1: `alone` on the
active party's columns as they are, `central` on these and on the partners' columns as partners
scale them.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from sklearn.linear_model import LogisticRegression

from hdpvfl_mq.app.demo.evaluate import score
from hdpvfl_mq.app.estimators.fitting import ALIGNMENT, Label, party_names, train
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.methods.recommend import recommend
from schemas.config import RunManifest
from schemas.methods import PrivateModel
from schemas.model import LossSpec
from schemas.privacy import Budget
from scripts.reproduction.grid import DELTA, DELTA_SMALL, Grid
from scripts.reproduction.partners import Dealt, dealt

LOSS = LossSpec(name="logistic")
NOISED, BOUNDED, DISCLOSED = "noised", "bounded", "200 disclosed rows"
MODES: dict[str, dict[str, Any]] = {
    NOISED: {},
    BOUNDED: {"noise": "bounded"},
    DISCLOSED: {"disclosed_rows": 200},
}
Cell = tuple[str, float, float]  # mode, delta, epsilon


def cells(grid: Grid) -> list[Cell]:
    """Every mode at epsilon 1 and both deltas; noised scores at the other epsilons too."""
    at_one = [(mode, delta, 1.0) for delta in (DELTA, DELTA_SMALL) for mode in MODES]
    return at_one + [(NOISED, DELTA, epsilon) for epsilon in grid.recovery_epsilons]


@dataclass(frozen=True)
class Task:
    """The runs of one split of one data set with some partners, at epsilon 1 or at the others."""

    dataset: str
    split: int
    partners: int
    is_at_one: bool
    cells: tuple[Cell, ...]

    @property
    def place(self) -> dict[str, Any]:
        """The key that distinguishes this task's rows from those of other tasks."""
        part = "epsilon 1" if self.is_at_one else "other epsilons"
        return {
            "dataset": self.dataset,
            "split": self.split,
            "partners": self.partners,
            "part": part,
        }

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the references and of every run."""
        data = dealt(self.dataset, self.split, self.partners)
        found = [
            {**self.place, "mode": "alone", **reference(data, 1)},
            {**self.place, "mode": "central", **reference(data, len(data.columns))},
        ]
        for mode, delta, epsilon in self.cells:
            began = time.process_time()
            plan = plan_of(data, mode, Budget(epsilon=epsilon, delta=delta), self.split)
            run = {"mode": mode, "delta": delta, "epsilon": epsilon, **joint(data, plan)}
            found.append({**self.place, **run, "cpu_s": time.process_time() - began})
        return found


def tasks(grid: Grid) -> list[Task]:
    """All tasks, split by split so that an interrupted run has whole splits; epsilon 1 first."""
    at_one = tuple(cell for cell in cells(grid) if cell[2] == 1.0)
    other = tuple(cell for cell in cells(grid) if cell[2] != 1.0)
    return [
        Task(dataset, split, partners, here is at_one, here)
        for here in (at_one, other)
        for split in grid.recovery_splits
        for partners in grid.recovery_partners
        for dataset in grid.recovery_datasets
        if here
    ]


def plan_of(data: Dealt, mode: str, budget: Budget, seed: int) -> RunManifest:
    """The recommended manifest, with the change of the mode."""
    active, *passives = party_names(len(data.columns))
    base = recommend("recovery", (active, tuple(passives)), "sound", budget, LOSS)
    method = PrivateModel(**{**dict(base.method), **MODES[mode]})
    changes = {"method": method, "alignment": ALIGNMENT, "seed": seed}
    return RunManifest(**{**dict(base), **changes})


def joint(data: Dealt, manifest: RunManifest) -> dict[str, Any]:
    """Train through the roles, and score the held-out rows with every party's own weights."""
    learnt = ~data.held
    named = f"{manifest.seed}/{manifest.budget}/{manifest.method}".encode()
    run = train(
        manifest,
        data.X[learnt],
        data.parts,
        Label(data.y[learnt], "binary"),
        secret=hashlib.sha256(named).digest(),
    )
    parts = zip(manifest.parties, data.parts, strict=True)
    theta = score(run.models, {party: part.apply(data.X[data.held]) for party, part in parts})
    model = run.models[manifest.active_party]
    spent = max(spend.lifetime_epsilon for spend in run.privacy.values())
    return {**_quality(theta, data), "joint": int(model["joint"]), "epsilon_spent": spent}


def reference(data: Dealt, parties: int) -> dict[str, float]:
    """Fit scikit-learn to the first parties' columns."""
    X = data.features(~data.held, parties)
    model = LogisticRegression(C=1.0, max_iter=3000).fit(X, data.y[~data.held])
    return _quality(model.decision_function(data.features(data.held, parties)), data)


def _quality(theta: Any, data: Dealt) -> dict[str, float]:
    found = quality(family(LOSS), theta, data.y[data.held])
    return {"accuracy": found["accuracy"], "auc": found["auc"]}
