"""Attacks on sent messages: labels from residuals, features from scores, and the game that
defines differential privacy.

It owns the attackers; their inputs are decoded from the journals of real runs. Each success is
shown next to the bound by the run's mu: for a mu-GDP run the best true-positive rate at a
false-positive rate a is Phi(Phi^-1(a) + mu), the best area under the curve Phi(mu / sqrt(2)).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from hdpvfl_mq.audit.evidence import Evidence, Transcript
from hdpvfl_mq.glm.block import scale_rows
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.privacy.mechanism import released_values
from hdpvfl_mq.psi import normalise, row_order
from parties.common_rows import response_of
from parties.party import Party
from parties.phases import training_of
from schemas.messages import ScoreShare
from scripts.reproduction import methods
from scripts.reproduction.data import ACTIVE, PASSIVE, Split, split
from scripts.reproduction.grid import Grid
from scripts.reproduction.methods import Fitted, side_mu

FALSE_POSITIVES = 0.01
KNOWN_SHARE = 0.25  # share of rows whose attribute the feature attacker knows
# One sensitive column of the passive party for each data set, and the value to find.
ATTRIBUTES = {
    "breast": ("mean_smoothness", "above its mean"),
    "credit": ("sex", "above its mean"),
    "adult": ("sex=Male", "above its mean"),
}

Vector = NDArray[np.float64]


def bounds(mu: float) -> dict[str, float]:
    """The best results that any attacker can reach against a mu-GDP run."""
    return {
        "auc_bound": float(norm.cdf(mu / math.sqrt(2.0))),
        "tpr_bound": float(norm.cdf(norm.ppf(FALSE_POSITIVES) + mu)),
    }


def success(guess: Vector, truth: NDArray[np.bool_]) -> dict[str, float]:
    """Area under the curve, and true-positive rates at low false-positive rates."""
    threshold = np.quantile(guess[~truth], 1.0 - FALSE_POSITIVES, method="higher")
    auc = float(roc_auc_score(truth, guess))
    return {
        "auc": auc,
        "auc_error": _auc_error(auc, int(truth.sum()), int((~truth).sum())),
        "tpr": float(np.mean(guess[truth] > threshold)),
    }


def _auc_error(auc: float, positives: int, negatives: int) -> float:
    """Standard error of an area under the curve (Hanley and McNeil)."""
    q1, q2, square = auc / (2.0 - auc), 2.0 * auc**2 / (1.0 + auc), auc**2
    variance = auc * (1.0 - auc) + (positives - 1) * (q1 - square) + (negatives - 1) * (q2 - square)
    return math.sqrt(max(variance, 0.0) / (positives * negatives))


def order_of(run: Fitted, data: Split, party: str) -> NDArray[np.int64]:
    """The rows of a party's table in the order of the run's rounds, which all parties know."""
    manifest = run.rehearsal.manifest
    key = hashlib.sha256(b"order" + manifest.seed.to_bytes(8, "big")).digest()
    ids = normalise(data.train[party].ids, manifest.alignment.ids)
    order: NDArray[np.int64] = ids.rows[row_order(ids.ids, key)]
    return order


def released(run: Fitted, party: str) -> Vector:
    """A party's releases: one line per row of the run, one column per release of that row."""
    journal = run.rehearsal.journals[party]
    transcript = Transcript(party, {}, tuple(journal.records()))
    evidence = Evidence(run.rehearsal.manifest.run, {}, {party: transcript})
    kind = ScoreShare if party == PASSIVE else None
    schedule = run.plan.schedule
    seen = np.full((run.plan.rows, schedule.epochs), np.nan)
    for _, message in evidence.releases():
        if isinstance(message, ScoreShare) == (kind is ScoreShare):
            rows, epoch = schedule.batch(message.round), schedule.epoch(message.round)
            seen[rows, epoch] = released_values(message.release)
    assert not np.isnan(seen).any()
    return seen


def label_inference(run: Fitted, data: Split) -> dict[str, float]:
    """A passive party infers labels from residuals, whose sign is the opposite of the label's."""
    guess = -released(run, ACTIVE).mean(axis=1)
    truth = data.y_train[order_of(run, data, ACTIVE)] > 0.0
    return success(guess, truth)


def feature_inference(run: Fitted, data: Split) -> dict[str, float]:
    """The active party infers an attribute of the passive party from scores and its own columns.

    It knows the attribute of some rows (as Luo et al. 2021 and others assume) and predicts it from
    its own columns and all scores it has seen; `auc_before` is the same without the scores. The
    bound is that of an attacker with the same columns and the most informative view of the run.
    """
    name = ATTRIBUTES[data.dataset][0]
    passive = data.train[PASSIVE]
    column = np.asarray(passive.X, dtype=np.float64)[:, passive.column_names.index(name)]
    truth = (column > column.mean())[order_of(run, data, PASSIVE)]
    own = np.asarray(data.train[ACTIVE].X, dtype=np.float64)[order_of(run, data, ACTIVE)]
    known = np.random.default_rng(data.seed).random(len(truth)) < KNOWN_SHARE
    scores = _whitened(released(run, PASSIVE))
    # The attacker knows its own row scales, so it scales its columns as the protocol does.
    before = _guess(np.hstack([own, scale_rows(own)]), truth, known)
    after = _guess(np.hstack([own, scale_rows(own), scores]), truth, known)
    mu = side_mu(run.plan, "passive")
    at_best = _at_best(before, truth[~known], mu)
    return {
        **success(after, truth[~known]),
        "auc_before": success(before, truth[~known])["auc"],
        "tpr_before": success(before, truth[~known])["tpr"],
        "auc_bound": at_best["auc"],
        "tpr_bound": at_best["tpr"],
    }


def _whitened(scores: Vector) -> Vector:
    """The scores in the basis of their principal directions, each with variance one."""
    centred = scores - scores.mean(axis=0)
    U, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = s > 1e-8 * max(float(s[0]), 1e-300)
    directions: Vector = U[:, kept] * math.sqrt(len(scores))
    return directions


def _guess(X: Vector, truth: NDArray[np.bool_], known: NDArray[np.bool_]) -> Vector:
    centre, scale = X[known].mean(axis=0), X[known].std(axis=0) + 1e-12
    X = (X - centre) / scale
    model = LogisticRegression(C=10.0, max_iter=2000).fit(X[known], truth[known])
    return np.asarray(model.decision_function(X[~known]))


def _at_best(before: Vector, truth: NDArray[np.bool_], mu: float) -> dict[str, float]:
    """Add to log-odds the most informative view a mu-GDP run can give: N(mu t, 1) for t = 0, 1."""
    if not math.isfinite(mu):
        return {"auc": 1.0, "tpr": 1.0}
    look = np.random.default_rng(0).normal(size=len(truth)) + mu * truth
    return success(before + mu * look - mu**2 / 2.0, truth)


def transcripts(grid: Grid, dataset: str, seed: int) -> list[dict[str, Any]]:
    """Run both attacks on runs without noise, as published, and sound."""
    data, rows = split(dataset, seed), []
    plans: list[tuple[str, Any, Any]] = [
        (methods.NON_PRIVATE, "", methods.manifest("none", method={"epochs": 60}))
    ]
    for epsilon in grid.attack_epsilons:
        plans.append((methods.PUBLISHED, epsilon, methods.published(epsilon)))
        plans.append((methods.SOUND, epsilon, methods.manifest("sound", epsilon=epsilon)))
    for method, epsilon, plan in plans:
        run = methods.fit(data, plan)
        place = {"dataset": dataset, "split": seed, "method": method, "epsilon": epsilon}
        mu = side_mu(run.plan, "active")
        labels = {**label_inference(run, data), **bounds(mu), "mu": mu}
        rows.append({**place, "attack": "labels", **labels})
        found = {**feature_inference(run, data), "mu": side_mu(run.plan, "passive")}
        rows.append({**place, "attack": "features", "target": ATTRIBUTES[dataset][0], **found})
    return rows


def game(grid: Grid, epsilon: float) -> list[dict[str, Any]]:
    """Play the game of the definition on Breast: one label is flipped or not, all else is known.

    The attacker projects the released residuals on the difference that the flip makes, which is
    the best possible test. Of several candidate rows, the one with the largest difference is used.
    """
    data = split("breast", 0)
    plan = methods.manifest("sound", epsilon=epsilon)
    base = methods.fit(data, plan)
    order = order_of(base, data, ACTIVE)
    honest = _residuals(base)
    candidates = [(_flipped(data, order[row]), row) for row in range(grid.game_rows)]
    differences = [_residuals(methods.fit(other, plan)) - honest for other, _ in candidates]
    best = int(np.argmax([np.linalg.norm(d) for d in differences]))
    flipped, direction = candidates[best][0], differences[best]
    mu = side_mu(base.plan, "active")

    def guesses(world: Split, truth: int) -> Vector:
        seeds = (1000 + 2 * n + truth for n in range(grid.game_runs))
        runs = (methods.fit(world, plan, noise_seed=seed) for seed in seeds)
        return np.array([released(run, ACTIVE)[:, 0] @ direction for run in runs])

    truth = np.repeat([False, True], grid.game_runs)
    exact = float(np.linalg.norm(direction)) / base.plan.active_noise.noise_std
    return [
        {
            "dataset": "breast",
            "split": 0,
            "method": methods.SOUND,
            "epsilon": epsilon,
            "attack": "one label",
            **success(np.concatenate([guesses(data, 0), guesses(flipped, 1)]), truth),
            "auc_bound": bounds(mu)["auc_bound"],
            "mu": mu,
            "mu_reached": exact,
            "runs": 2 * grid.game_runs,
        }
    ]


def _residuals(run: Fitted) -> Vector:
    """The centred labels of a run before noise, which only this script can see."""
    training = training_of(run.simulation.nodes[ACTIVE].state)
    assert training is not None
    plan, role = training.setup.plan, run.simulation.nodes[ACTIVE].role
    assert isinstance(plan, PrivateModelPlan)
    assert isinstance(role, Party)
    labels = response_of(role.own, training.setup).centred_labels(plan.learnt_rows)
    found: Vector = labels.expose()
    return found


def _flipped(data: Split, row: int) -> Split:
    """The same data with one label flipped."""
    y = data.y_train.copy()
    y[row] = 1.0 - y[row]
    active = replace(data.train[ACTIVE], y=y)
    return replace(data, train={**data.train, ACTIVE: active})
