"""All methods in the comparison: scikit-learn's, and VFL through production roles.

It owns how a split and a manifest become a fitted model and its quality. It has no second
implementation of VFL: `Rehearsal` runs the parties, `evaluate.score` the joint model.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel
from sklearn.linear_model import LogisticRegression

from hdpvfl_mq.app.demo.evaluate import score
from hdpvfl_mq.app.demo.rehearsal import Rehearsal
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.methods import plan_run, recommend
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.plan import NoisePlan
from hdpvfl_mq.runtime.simulation import Simulation
from parties.common_rows import is_scaled
from parties.phases import setup_of
from schemas.alignment import KeptAlignment
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.ids import PartyRole
from schemas.methods import Guarantee
from schemas.model import LossSpec
from schemas.privacy import Budget
from scripts.reproduction.data import ACTIVE, PARTIES, PASSIVE, Split

Model = TypeVar("Model", bound=BaseModel)
LOSS = LossSpec(name="logistic")
NAMES = ("reproduction", (ACTIVE, (PASSIVE,)))  # names of the run and its parties
ALIGNMENT = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=10)
# The paper leaves eta open. 0.1 is small enough for its own Lemma 2 to hold over a run on Breast
# (docs/privacy.md); the page shows other values.
STEP_SIZE = 0.1
PUBLISHED, SOUND = "HDP-VFL as published", "HDP-VFL sound"
NON_PRIVATE = "VFL without privacy"
NON_PRIVATE_PAPER = "VFL without privacy, settings of the paper"
ALONE, CENTRAL = "active alone", "central"
MAJORITY = "majority class"
ALONE_STANDARDISED, CENTRAL_STANDARDISED = f"{ALONE}, not row-scaled", f"{CENTRAL}, not row-scaled"


# Alignments of the rows that were used last.
_KEPT: dict[tuple[bytes, ...], dict[str, tuple[KeptAlignment, ...]]] = {}


@dataclass(frozen=True)
class Fitted:
    """A finished run: its quality on the test rows, and what it cost."""

    accuracy: float
    auc: float
    plan: RunPlan
    seconds: float
    rehearsal: Rehearsal
    simulation: Simulation

    def row(self) -> dict[str, Any]:
        """The run as a table row; mu is the real cost of its releases."""
        return {
            "accuracy": self.accuracy,
            "auc": self.auc,
            "mu_active": side_mu(self.plan, "active"),
            "mu_passive": side_mu(self.plan, "passive"),
            "seconds": self.seconds,
        }


def real_mu(noise: NoisePlan) -> float:
    """The real cost of a side's releases, also where the ledger books it as infinite."""
    return noise.sensitivity / noise.noise_std if noise.noise_std > 0.0 else float("inf")


def side_mu(plan: RunPlan, role: PartyRole) -> float:
    """The joint cost of all releases of a party."""
    return math.sqrt(sum(real_mu(noise) ** 2 for noise in plan.releases_of(role).values()))


def manifest(
    guarantee: Guarantee, *, epsilon: float = 1.0, delta: float = 1e-2, **changes: Any
) -> RunManifest:
    """The recommended manifest for one active and one passive party, with named changes."""
    base = recommend.recommend(*NAMES, guarantee, Budget(epsilon=epsilon, delta=delta), LOSS)
    return changed(base, alignment=ALIGNMENT, **changes)


def changed(model: Model, **changes: Any) -> Model:
    """A validated copy with changed fields; a dict changes fields of a nested model."""
    fields = dict(model)
    for name, value in changes.items():
        fields[name] = changed(fields[name], **value) if isinstance(value, dict) else value
    return type(model)(**fields)


def published(
    epsilon: float,
    delta: float = 1e-2,
    *,
    epochs: int = 10,
    k: float = 1.0,
    step_size: float = STEP_SIZE,
) -> RunManifest:
    """The settings of the paper's experiments, where only e and k vary."""
    side = {"weight_norm": k, "step_size": step_size}
    method = {"epochs": epochs, "active": side, "passive": side}
    return manifest("paper", epsilon=epsilon, delta=delta, method=method)


def published_without_noise(step_size: float = STEP_SIZE) -> RunManifest:
    """The same settings without noise: what the ball, the steps and the epochs alone allow."""
    paper = published(1.0, step_size=step_size)
    return manifest("none", penalty=paper.penalty, method=paper.method)


def sound_descent(epsilon: float, *, epochs: int = 5) -> RunManifest:
    """Sound descent with long steps, averaging and local steps: the paper's rounds, repaired."""
    base = recommend.sound_descent(*NAMES, Budget(epsilon=epsilon, delta=1e-2), LOSS)
    return changed(base, alignment=ALIGNMENT, method={"epochs": epochs})


def fit(split: Split, plan: RunManifest, *, noise_seed: int = 0) -> Fitted:
    """Run a federation on a split and score its test rows."""
    name = f"{split.dataset}/{split.seed}/{noise_seed}/{plan.guarantee}/{plan.budget}"
    seeded = changed(plan, seed=split.seed)
    began = time.perf_counter()
    rehearsal = Rehearsal(seeded, split.train, secret=name.encode()[:64])
    rehearsal.kept = _KEPT.get(_rows_of(split), {})
    simulation = rehearsal.simulate()
    if set(rehearsal.outcomes.values()) != {"completed"}:
        raise HdpvflError(f"the run {name} ended otherwise: {rehearsal.outcomes}")
    seconds = time.perf_counter() - began
    _keep(split, simulation)
    theta = score(_models(rehearsal, simulation), split.test)
    found = quality(family(LOSS), theta, split.y_test)
    rows = len(split.y_train)
    return Fitted(
        found["accuracy"],
        found["auc"],
        plan_run(seeded, rows),
        seconds,
        rehearsal,
        simulation,
    )


def _rows_of(split: Split) -> tuple[bytes, ...]:
    return tuple(data.fingerprint for data in split.train.values())


def _keep(split: Split, simulation: Simulation) -> None:
    """Keep the alignment, so that later runs on the same rows reuse it as in production."""
    if _rows_of(split) not in _KEPT:
        found = {p: setup_of(simulation.nodes[p].state) for p in PARTIES}
        _KEPT.clear()
        _KEPT[_rows_of(split)] = {
            p: (setup.alignment,) for p, setup in found.items() if setup and setup.alignment
        }


def _models(rehearsal: Rehearsal, simulation: Simulation) -> dict[str, dict[str, Any]]:
    """The fields of every party's model.json that scoring reads."""
    weights, coefficients = rehearsal.weights(simulation), rehearsal.coefficients(simulation)
    return {
        party: {
            "role": rehearsal.roles[party],
            "weights": weights[party].tolist(),
            "scale_rows": is_scaled(rehearsal.assets(party), rehearsal.manifest),
            "coefficients": coefficients if party == rehearsal.manifest.active_party else {},
            "manifest": json.loads(rehearsal.manifest.model_dump_json()),
        }
        for party in rehearsal.parties
    }


def references(split: Split) -> dict[str, dict[str, float]]:
    """Quality without a federation: the majority class, one party, all data in one place."""
    majority = max(np.mean(split.y_test > 0), np.mean(split.y_test == 0))
    found = {MAJORITY: {"accuracy": float(majority), "auc": 0.5}}
    for name, parties, scaled in (
        (ALONE, (ACTIVE,), True),
        (ALONE_STANDARDISED, (ACTIVE,), False),
        (CENTRAL, PARTIES, True),
        (CENTRAL_STANDARDISED, PARTIES, False),
    ):
        train, test = split.features(parties, scaled=scaled)
        model = LogisticRegression(C=1.0, max_iter=3000).fit(train, split.y_train)
        theta = np.asarray(model.decision_function(test))
        found[name] = quality(family(LOSS), theta, split.y_test)
    return found
