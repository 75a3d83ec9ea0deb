"""Q1 and Q2: privacy against accuracy, and the effect of the hyper-parameters.

It owns which runs answer which question. Each function does all runs of one split, so that the
split is prepared once; the caller distributes the splits over processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from schemas.config import RunManifest
from scripts.reproduction import methods
from scripts.reproduction.data import PARTIES, Split, fold, split
from scripts.reproduction.grid import DELTA, DELTA_SMALL, Grid
from scripts.reproduction.he import PlainNumbers, accuracy_of, paper_settings, to_the_end
from scripts.reproduction.tables import mean

HE, HE_PAPER = "HE-VFL", "HE-VFL, settings of the paper"


def q1(grid: Grid, dataset: str, seed: int) -> list[dict[str, Any]]:
    """Every method at every budget on one split; on a fresh split only the sound method."""
    data = split(dataset, seed)
    place = {"dataset": dataset, "split": seed}
    rows = [
        {**place, "method": method, **found} for method, found in methods.references(data).items()
    ]
    fresh, draws = seed not in grid.splits, dict(grid.draws).get(dataset, 1)
    budgets = [(DELTA, epsilon) for epsilon in grid.epsilons]
    if not fresh:
        budgets += [(DELTA_SMALL, epsilon) for epsilon in grid.small_delta_epsilons]
    for delta, epsilon in budgets:
        plans = {methods.SOUND: methods.manifest("sound", epsilon=epsilon, delta=delta)}
        if not fresh:
            plans[methods.PUBLISHED] = methods.published(epsilon, delta)
        for method, plan in plans.items():
            budget = {"delta": delta, "epsilon": epsilon}
            rows.append({**place, "method": method, **budget, **_mean_run(data, plan, draws)})
    return rows if fresh else [*rows, *_without_noise(data, place)]


def _mean_run(data: Split, plan: RunManifest, draws: int) -> dict[str, Any]:
    """One run, or the means of several that differ in their noise."""
    runs = [methods.fit(data, plan, noise_seed=draw).row() for draw in range(draws)]
    return {**{name: mean(runs, name) for name in runs[0]}, "draws": draws}


def _without_noise(data: Split, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Federations without privacy, and the results of encrypted ones."""
    for method, plan in (
        (methods.NON_PRIVATE, methods.manifest("none")),
        (methods.NON_PRIVATE_PAPER, methods.published_without_noise()),
    ):
        yield {**place, "method": method, **methods.fit(data, plan).row()}
    for method, settings in ((HE, to_the_end(len(PARTIES))), (HE_PAPER, paper_settings())):
        yield {**place, "method": method, **accuracy_of(data, settings, PlainNumbers())}


def q2(grid: Grid, seed: int) -> list[dict[str, Any]]:
    """Vary e and k of the paper on Breast, one at a time, and the step size it leaves open."""
    data = split("breast", seed)
    pairs = dict.fromkeys(
        [*((e, 1.0) for e in grid.epochs), *((10, k) for k in grid.norms if 10 in grid.epochs)]
    )
    rows = []
    for (epochs, k), epsilon in itertools.product(pairs, grid.epsilons):
        for noise_seed in range(grid.noise_seeds if epsilon == 1.0 else 1):
            plan = methods.published(epsilon, epochs=epochs, k=k)
            found = methods.fit(data, plan, noise_seed=noise_seed)
            place = {"split": seed, "noise_seed": noise_seed, "epochs": epochs, "k": k}
            rows.append({**place, "epsilon": epsilon, **found.row()})
    return rows


def step_sizes(grid: Grid, dataset: str, seed: int) -> list[dict[str, Any]]:
    """The published method at several step sizes, with and without its noise."""
    data, rows = split(dataset, seed), []
    for eta, epsilon in itertools.product(
        (0.03, 0.1, 0.3, 1.0, 3.0), (0.1, 1.0, 10.0, float("inf"))
    ):
        plan = (
            methods.published_without_noise(step_size=eta)
            if epsilon == float("inf")
            else methods.published(epsilon, step_size=eta)
        )
        place = {"dataset": dataset, "split": seed, "step_size": eta, "epsilon": epsilon}
        rows.append({**place, **methods.fit(data, plan).row()})
    return rows


def epochs_and_steps(grid: Grid, seed: int) -> list[dict[str, Any]]:
    """Test the paper's precise claim on Breast, epsilon = 1, at several step sizes."""
    data, rows = split("breast", seed), []
    for epochs, eta in itertools.product(grid.epochs, (0.1, 0.3, 1.0, 3.0)):
        plan = methods.published(1.0, epochs=epochs, step_size=eta)
        for noise_seed in range(grid.noise_seeds):
            place = {"split": seed, "noise_seed": noise_seed, "epochs": epochs, "step_size": eta}
            found = methods.fit(data, plan, noise_seed=noise_seed)
            rows.append({**place, "epsilon": 1.0, **found.row()})
    return rows


def tuned(grid: Grid, seed: int) -> list[dict[str, Any]]:
    """Choose e and k by cross-validation on Breast, as in the paper, and with its runs charged.

    A row is in the training part of folds - 1 of the runs of every candidate and in the last run.
    Each run gets epsilon over the root of the number of runs, so that the Gaussian releases of all
    runs compose to the noise of one. The accuracies that choose stay un-noised even then.
    """
    data, rows = split("breast", seed), []
    candidates = list(itertools.product(grid.epochs, grid.norms))
    runs = len(candidates) * (grid.folds - 1) + 1
    for epsilon in grid.tuned_epsilons:
        for charged in (False, True):
            share = epsilon / np.sqrt(runs) if charged else epsilon
            scores = {}
            for e, k in candidates:
                plan = methods.published(share, epochs=e, k=k)
                found = [
                    methods.fit(fold(data, f, grid.folds), plan, noise_seed=f).accuracy
                    for f in range(grid.folds)
                ]
                scores[e, k] = float(np.mean(found))
            e, k = max(scores, key=lambda pair: scores[pair])
            plan = methods.published(share, epochs=e, k=k)
            place = {"split": seed, "epsilon": epsilon, "charged": int(charged), "runs": runs}
            chosen = {"epochs": e, "k": k, "delta": DELTA}
            rows.append({**place, **chosen, **methods.fit(data, plan).row()})
    return rows


# Variants of the sound method that were tried: changes to the planner's recommendation.
VARIANTS: dict[str, dict[str, Any]] = {
    "as recommended": {},
    "descent, 5 epochs over all rows": {"descent": 5},
    "descent, 1 epoch over all rows": {"descent": 1},
    "scores: B = 1.5": {"score_bound": 1.5},
    "scores: B = 3": {"score_bound": 3.0},
    "statistics: twice the budget": {"moments_share": 0.28, "gram_share": 0.12},
    "statistics: half the budget": {"moments_share": 0.07, "gram_share": 0.03},
    "statistics: all of it for X'z": {"moments_share": 0.19, "gram_share": 0.01},
    "labels: C = 1": {"received_clip": 0.0},
    "labels: C = 1 + 2 noise": {"received_clip": 2.0},
    "weights: prior variance x 3": {"signal_share": 0.27, "weight_variance_max": 1.5},
    "weights: prior variance / 3": {"signal_share": 0.03, "weight_variance_max": 0.17},
}


def variants(grid: Grid, dataset: str, seed: int) -> list[dict[str, Any]]:
    """The sound method with other constants, and as descent."""
    data, rows = split(dataset, seed), []
    for name, epsilon in itertools.product(VARIANTS, grid.variant_epsilons):
        change = VARIANTS[name]
        if "descent" in change:
            plan = methods.sound_descent(epsilon, epochs=change["descent"])
        else:
            plan = methods.manifest("sound", epsilon=epsilon, method=change)
        place = {"dataset": dataset, "split": seed, "variant": name, "epsilon": epsilon}
        rows.append({**place, **methods.fit(data, plan).row()})
    return rows
