"""How many runs the reproduction makes: the full grids, and smaller ones for a quick look.

It owns sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass

DATASETS = ("breast", "credit", "adult")
RECOVERY = ("credit", "adult", "telco", "magic", "flchain", "lending")  # in the folder HDPVFL_DATA
EPSILONS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
DELTA, DELTA_SMALL = 1e-2, 1e-5


@dataclass(frozen=True)
class Grid:
    """Splits, budgets, repetitions and sizes of one reproduction."""

    datasets: tuple[str, ...] = DATASETS
    epsilons: tuple[float, ...] = EPSILONS
    small_delta_epsilons: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
    draws: tuple[tuple[str, int], ...] = (("breast", 5),)  # of noise for each run of Q1; others 1
    splits: range = range(10)
    fresh_splits: range = range(10, 20)  # only for the sound method
    epochs: tuple[int, ...] = (5, 10, 15)
    norms: tuple[float, ...] = (0.1, 0.5, 1.0)
    noise_seeds: int = 3  # for Q2 at epsilon = 1, where the paper's text is precise
    step_splits: range = range(3)
    tuned_epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    tuned_splits: range = range(3)
    folds: int = 5
    timed_rows: tuple[int, ...] = (10_000, 25_000, 50_000, 75_000, 100_000)
    timed_epochs: int = 10
    repetitions: int = 3
    he_rows: int = 160
    attack_datasets: tuple[str, ...] = DATASETS
    attack_epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    game_runs: int = 100
    game_rows: int = 20
    variant_epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    variant_splits: range = range(3)
    recovery_datasets: tuple[str, ...] = RECOVERY
    recovery_splits: range = range(10)
    recovery_partners: tuple[int, ...] = (1, 5, 10)
    recovery_epsilons: tuple[float, ...] = (0.01, 0.1, 0.3, 3.0, 10.0)  # besides 1


FULL = Grid()
QUICK = Grid(
    epsilons=(0.1, 1.0, 10.0),
    small_delta_epsilons=(),
    draws=(),
    splits=range(2),
    fresh_splits=range(10, 12),
    noise_seeds=1,
    step_splits=range(1),
    tuned_epsilons=(1.0,),
    tuned_splits=range(1),
    timed_rows=(10_000,),
    timed_epochs=3,
    repetitions=1,
    he_rows=32,
    attack_datasets=("breast",),
    attack_epsilons=(1.0,),
    game_runs=20,
    variant_epsilons=(1.0,),
    variant_splits=range(1),
    recovery_datasets=("telco", "flchain"),
    recovery_splits=range(2),
    recovery_epsilons=(0.1, 10.0),
)
TINY = Grid(
    datasets=("breast",),
    epsilons=(1.0, 10.0),
    small_delta_epsilons=(),
    draws=(),
    splits=range(1),
    fresh_splits=range(10, 11),
    epochs=(5,),
    norms=(1.0,),
    noise_seeds=1,
    step_splits=range(1),
    tuned_epsilons=(),
    timed_rows=(),
    he_rows=0,
    attack_datasets=("breast",),
    attack_epsilons=(1.0,),
    game_runs=3,
    game_rows=2,
    variant_splits=range(0),
    recovery_datasets=(),
)
