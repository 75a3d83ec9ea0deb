"""Random and climbing adversaries against the sound bounds: never above, and almost reached.

A climber starts from random pairs of neighbouring runs and keeps those changes of rows, labels and
received values that bring the releases further apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from privacy_neighbours import (
    LOSSES,
    Array,
    Loss,
    Setting,
    active_releases,
    passive_releases,
    squared_moves,
    unit_rows,
)

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods.descent.bound import ActiveBounds, PublicSchedule
from hdpvfl_mq.methods.descent.sensitivity import profile
from schemas.model import LossSpec

PENALTIES = ("l2", "l1", "elastic_net", "none")
Genome = dict[str, Array]
LOGISTIC = family(LossSpec(name="logistic"))


def born(rng: np.random.Generator, runs: int, setting: Setting, loss: Loss, columns: int) -> Genome:
    rows, rounds = setting.rows, setting.schedule.rounds
    low, high = loss.labels
    label = (
        rng.choice([low, high], (runs, rows))
        if loss.binary
        else rng.uniform(low, high, (runs, rows))
    )
    spare = rng.choice([low, high], runs) if loss.binary else rng.uniform(low, high, runs)
    return {
        "X": unit_rows(rng.normal(size=(runs, rows, columns)) * 2),
        "row": unit_rows(rng.normal(size=(runs, columns)) * 2),
        "y": label,
        "label": spare,
        "which": rng.integers(rows, size=runs),
        "received": rng.normal(size=(runs, rounds, rows)) * rng.choice([0.3, 1, 10], (runs, 1, 1)),
    }


def mutated(rng: np.random.Generator, genome: Genome, loss: Loss) -> Genome:
    runs = len(genome["X"])
    size = rng.choice([0.02, 0.1, 0.5], (runs, 1, 1))
    child = {name: values.copy() for name, values in genome.items()}
    for name in ("X", "received"):
        hit = rng.random(child[name].shape) < 0.4
        child[name] = child[name] + hit * rng.normal(size=child[name].shape) * size
    child["X"] = unit_rows(child["X"])
    child["row"] = unit_rows(child["row"] + rng.normal(size=child["row"].shape) * size[:, 0])
    for name in ("y", "label"):
        low, high = loss.labels
        fresh = rng.choice([low, high], child[name].shape)
        child[name] = np.where(rng.random(child[name].shape) < 0.1, fresh, child[name])
    return child


def neighbour(genome: Genome) -> tuple[Array, Array]:
    X, y = genome["X"].copy(), genome["y"].copy()
    runs = np.arange(len(X))
    X[runs, genome["which"]] = genome["row"]
    y[runs, genome["which"]] = genome["label"]
    return X, y


Moves = Callable[[Genome], Array]


def climb(rng: np.random.Generator, start: Genome, loss: Loss, share: Moves, steps: int) -> float:
    """Give the largest share of the bound that was reached, at any round of any run."""
    best, scores = start, share(start)
    for _ in range(steps):
        child = mutated(rng, best, loss)
        new = share(child)
        better = new > scores
        best = {
            name: np.where(better.reshape(-1, *[1] * (v.ndim - 1)), child[name], v)
            for name, v in best.items()
        }
        scores = np.where(better, new, scores)
    return float(scores.max())


def passive_share(setting: Setting, grid: float) -> Moves:
    bound = setting.bound(setting.passive(), grid)

    def share(genome: Genome) -> Array:
        X, _ = neighbour(genome)
        first = passive_releases(genome["X"], genome["received"], setting)
        moves = squared_moves(first, passive_releases(X, genome["received"], setting), grid)
        assert (moves <= bound * (1 + 1e-12)).all()
        return moves[:, -1] / max(bound[-1], 1e-300)

    return share


def active_share(setting: Setting, loss: Loss, grid: float, own: float | None = None) -> Moves:
    bounds = setting.active(loss)
    if own is not None:
        bounds = ActiveBounds(
            radius=bounds.radius,
            residual_bound=loss.bound,
            smoothness=loss.smoothness,
            rho=bounds.rho,
            rounding=0.0,
            local_steps=bounds.local_steps,
            own_release=own,
        )
    bound = setting.bound(bounds, grid)

    def share(genome: Genome) -> Array:
        X, y = neighbour(genome)
        args = (genome["received"], setting, loss)
        moves = squared_moves(
            active_releases(genome["X"], genome["y"], *args), active_releases(X, y, *args), grid
        )
        assert (moves <= bound * (1 + 1e-12)).all()
        return moves[:, -1] / max(bound[-1], 1e-300)

    return share


def settings(rng: np.random.Generator, penalty: str, beta: float) -> Setting:
    rows = tuple(int(x) for x in rng.integers(1, 6, size=rng.integers(1, 4)))
    lam = float(rng.uniform(0, 1.5))
    # A passive step has no curvature of its own; lambda alone limits it.
    eta = float(rng.uniform(0.05, 1.0) * 2.0 / (beta + lam))
    return Setting(
        schedule=PublicSchedule(rows, int(rng.integers(1, 5)), eta),
        penalty=penalty,
        lam=lam,
        alpha=float(rng.uniform(0, 1)),
        radius=float(10 ** rng.uniform(-1, 1)),
        clip=float(10 ** rng.uniform(-1, 1)),
        local_steps=int(rng.integers(1, 4)),
        free=int(rng.integers(0, 2)),
    )


def attack_all(rng: np.random.Generator, *, runs: int, steps: int) -> int:
    """Every loss and penalty on both sides; gives the number of neighbouring pairs tried."""
    tried = 0
    for penalty in PENALTIES:
        for loss in LOSSES.values():
            setting = settings(rng, penalty, loss.smoothness)
            grid = float(rng.choice([0.0, 2.0**-6, 2.0**-3]))
            share = active_share(setting, loss, grid)
            climb(rng, born(rng, runs, setting, loss, 2), loss, share, steps)
            setting = settings(rng, penalty, 0.05)
            climb(rng, born(rng, runs, setting, loss, 2), loss, passive_share(setting, grid), steps)
            tried += 2 * runs * (steps + 1)
    return tried


def test_ten_thousand_adversarial_pairs_stay_within_the_bounds() -> None:
    assert attack_all(np.random.default_rng(11), runs=40, steps=30) >= 10_000


@pytest.mark.slow
def test_a_million_adversarial_pairs_stay_within_the_bounds() -> None:
    rng = np.random.default_rng(12)
    assert sum(attack_all(rng, runs=50, steps=60) for _ in range(8)) >= 1_000_000


def test_the_passive_bound_is_reached_within_a_tenth() -> None:
    # All rows along one direction and all received values at the clip: weights and their distance
    # grow as fast as the bound says.
    schedule = PublicSchedule((20,), 6, 0.5)
    setting = Setting(schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=50.0, clip=1.0)
    X = np.zeros((1, 20, 2))
    X[:, :, 0] = 1.0
    other = X.copy()
    other[0, 0, 0] = -1.0
    received = np.full((1, 6, 20), -7.0)
    moves = squared_moves(
        passive_releases(X, received, setting), passive_releases(other, received, setting), 0.0
    )
    reached = np.sqrt(moves[0, -1]) / profile(setting.passive(), schedule, grid=0.0).total
    assert 0.9 < reached <= 1.0


def test_the_passive_distance_term_alone_is_reached() -> None:
    # The row is in batch 0; every later release of batch 1 shows the distance of the weights.
    schedule = PublicSchedule((2, 30), 1, 0.5)
    setting = Setting(schedule=schedule, penalty="l2", lam=0.1, alpha=0.0, radius=5.0, clip=3.0)
    X = np.zeros((1, 32, 1)) + 1.0
    other = X.copy()
    other[0, 0, 0] = -1.0
    received = np.full((1, 2, 32), 3.0)
    received[:, :, 1] = 0.0
    moves = squared_moves(
        passive_releases(X, received, setting), passive_releases(other, received, setting), 0.0
    )
    reached = np.sqrt(moves[0, -1]) / profile(setting.passive(), schedule, grid=0.0).total
    assert 0.999 < reached <= 1.0


def test_the_active_bound_is_reached_within_a_tenth() -> None:
    schedule = PublicSchedule((10,), 5, 0.2)
    loss = LOSSES["huber"]
    setting = Setting(schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=10.0)
    X = np.ones((1, 10, 1))
    y = np.zeros((1, 10))
    y[0, 0] = 3.0
    other = y.copy()
    other[0, 0] = -3.0
    received = np.zeros((1, 5, 10))
    moves = squared_moves(
        active_releases(X, y, received, setting, loss),
        active_releases(X, other, received, setting, loss),
        0.0,
    )
    reached = np.sqrt(moves[0, -1]) / profile(setting.active(loss), schedule, grid=0.0).total
    assert 0.9 < reached <= 1.0


def test_the_logistic_own_release_is_reached_and_never_exceeded() -> None:
    # The other rows push the weight to the border; the replaced row flips label and direction.
    loss, schedule = LOSSES["logistic"], PublicSchedule((6,), 12, 2.0)
    setting = Setting(schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=1.0)
    X, y = np.ones((1, 6, 1)), np.ones((1, 6))
    other, label = X.copy(), y.copy()
    X[0, 0, 0], label[0, 0] = -1.0, -1.0
    received = np.full((1, 12, 6), -20.0)
    received[:, :, 0] = 0.0
    first = active_releases(X, y, received, setting, loss)
    second = active_releases(other, label, received, setting, loss)
    moves = [abs(float(a[0, 0] - b[0, 0])) for a, b in zip(first, second, strict=True)]
    assert moves[-1] == pytest.approx(LOGISTIC.release_bound(1.0))
    assert max(moves) <= LOGISTIC.release_bound(1.0)


def test_random_logistic_runs_stay_within_the_smaller_own_release() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        setting = settings(rng, "l2", 0.25)
        own = LOGISTIC.release_bound(setting.radius)
        share = active_share(setting, LOSSES["logistic"], 0.0, own=own)
        climb(rng, born(rng, 50, setting, LOSSES["logistic"], 2), LOSSES["logistic"], share, 30)


def test_climbing_from_random_runs_comes_within_a_tenth_of_the_passive_bound() -> None:
    rng = np.random.default_rng(6)
    schedule = PublicSchedule((12,), 2, 1.0)
    setting = Setting(schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=50.0, clip=0.1)
    start = born(rng, 100, setting, LOSSES["huber"], 1)
    start["received"] *= 0.03
    reached = climb(rng, start, LOSSES["huber"], passive_share(setting, 0.0), 500)
    assert 0.81 < reached <= 1.0  # a share of the square
