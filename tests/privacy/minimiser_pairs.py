"""Many pairs of neighbouring one-round runs at once, to attack their closed-form bounds with.

It owns a second writing of both fits, by projected gradient steps with momentum over a leading axis
of runs, and a climber that pushes releases apart; it uses the product's losses, not its solvers.
What a passive party receives is the adversary's choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.glm.families import Family, family
from hdpvfl_mq.methods.one_round.bound import MinimiserActive, MinimiserPassive
from schemas.model import LossSpec

Array = np.ndarray
Pair = dict[str, Array]
LOSSES = (
    LossSpec(name="logistic"),
    LossSpec(name="bernoulli", weight_max=1.0),
    LossSpec(name="least_squares"),
    LossSpec(name="normal", dispersion=2.0),
    LossSpec(name="huber"),
    LossSpec(name="squared_hinge"),
    LossSpec(name="poisson", label_high=4.0, residual_clip=1.5),
    LossSpec(name="gamma", label_low=0.1, label_high=4.0),
)


@dataclass(frozen=True, kw_only=True)
class ActiveSetting:
    """Public numbers of an active party."""

    loss: Family
    rows: int
    strength: float
    reach: float

    def bounds(self, error: float = 0.0) -> MinimiserActive:
        return MinimiserActive(
            rows=self.rows,
            residual_bound=self.loss.residual_bound,
            smoothness=self.loss.smoothness,
            strength=self.strength,
            own_release=self.loss.release_bound(self.reach),
            intercept=True,
            error=error,
            rounding=0.0,
        )


@dataclass(frozen=True, kw_only=True)
class PassiveSetting:
    """Public numbers of a passive party."""

    rows: int
    clip: float
    curvature: float
    strength: float
    norm: float
    score_bound: float

    def bounds(self, error: float = 0.0) -> MinimiserPassive:
        return MinimiserPassive(
            rows=self.rows,
            clip_received=self.clip,
            curvature=self.curvature,
            strength=self.strength,
            weight_norm=self.norm,
            score_bound=self.score_bound,
            error=error,
        )


def scores(X: Array, w: Array) -> Array:
    return np.asarray((X @ w[:, :, None])[:, :, 0])


def minimise(
    X: Array,
    residual: Callable[[Array], Array],
    *,
    smoothness: float,
    strengths: Array,
    radius: float,
    bounded: int,
) -> Array:
    """Weights of every run; the first `bounded` of them stay in the ball."""
    least, most = float(strengths.min()), smoothness + float(strengths.max())
    root = math.sqrt(least / most)
    w = ahead = np.zeros((len(X), X.shape[2]))
    for _ in range(math.ceil(32.0 / root)):
        h = residual(scores(X, ahead))
        g = (h[:, None, :] @ X)[:, 0] / X.shape[1] + strengths * ahead
        moved = ahead - g / most
        norm = np.linalg.norm(moved[:, :bounded], axis=1, keepdims=True)
        moved[:, :bounded] /= np.maximum(1.0, norm / radius)
        w, ahead = moved, moved + (1 - root) / (1 + root) * (moved - w)
    return w


def with_intercept(X: Array) -> Array:
    return np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2) / math.sqrt(2.0)


def active_release(
    X: Array, y: Array, setting: ActiveSetting, *, ball: bool = True, penalise: bool = True
) -> Array:
    """Residuals at the minimiser; `ball` and `penalise` off are bugs to be caught."""
    rows, columns = with_intercept(X), X.shape[2]
    strengths = np.full(columns + 1, setting.strength)
    if not penalise:
        strengths[-1] = setting.strength / 100.0
    w = minimise(
        rows,
        lambda theta: setting.loss.residual(theta, y),
        smoothness=setting.loss.smoothness,
        strengths=strengths,
        radius=setting.reach * math.sqrt(2.0) if ball else math.inf,
        bounded=columns,
    )
    return setting.loss.residual(scores(rows, w), y)


def passive_weights(X: Array, received: Array, setting: PassiveSetting) -> Array:
    z = np.clip(received, -setting.clip, setting.clip)
    return minimise(
        X,
        lambda theta: z + setting.curvature * theta,
        smoothness=setting.curvature,
        strengths=np.full(X.shape[2], setting.strength),
        radius=setting.norm,
        bounded=X.shape[2],
    )


def passive_release(X: Array, received: Array, setting: PassiveSetting) -> Array:
    released = scores(X, passive_weights(X, received, setting))
    return np.clip(released, -setting.score_bound, setting.score_bound)


def unit_rows(X: Array) -> Array:
    return X / np.maximum(1.0, np.linalg.norm(X, axis=-1, keepdims=True))


def draw_labels(rng: np.random.Generator, loss: Family, shape: tuple[int, ...]) -> Array:
    if loss.label_kind == "binary":
        return rng.choice([loss.label_low, loss.label_high], shape)
    return rng.uniform(loss.label_low, loss.label_high, shape)


def born(rng: np.random.Generator, runs: int, rows: int, columns: int, loss: Family) -> Pair:
    """Random pairs; the replaced row is row 0."""
    size = rng.choice([0.05, 0.4, 3.0], (runs, rows, 1))
    X = unit_rows(rng.normal(size=(runs, rows, columns)) * size)
    line = rng.random(runs) < 0.3
    X[line, :, 1:] = 0.0
    return {
        "X": X,
        "row": unit_rows(np.where(line[:, None], -X[:, 0], rng.normal(size=(runs, columns)) * 3)),
        "y": draw_labels(rng, loss, (runs, rows)),
        "label": draw_labels(rng, loss, (runs,)),
        "received": rng.normal(size=(runs, rows)) * rng.choice([0.5, 5.0], (runs, 1)),
    }


def mutated(rng: np.random.Generator, pair: Pair, loss: Family) -> Pair:
    size = rng.choice([0.02, 0.1, 0.5], (len(pair["X"]), 1, 1))
    hit = rng.random(pair["X"].shape[:2]) < 0.3
    move = hit[:, :, None] * rng.normal(size=pair["X"].shape) * size
    fresh = draw_labels(rng, loss, pair["y"].shape)
    flips = rng.random(pair["y"].shape) < 0.1
    again = rng.random(len(size)) < 0.1
    return {
        "X": unit_rows(pair["X"] + move),
        "row": unit_rows(pair["row"] + rng.normal(size=pair["row"].shape) * size[:, 0]),
        "y": np.where(flips, fresh, pair["y"]),
        "label": np.where(again, draw_labels(rng, loss, (len(size),)), pair["label"]),
        "received": pair["received"] + flips * rng.normal(size=flips.shape) * 3.0,
    }


def neighbour(pair: Pair) -> tuple[Array, Array]:
    X, y = pair["X"].copy(), pair["y"].copy()
    X[:, 0], y[:, 0] = pair["row"], pair["label"]
    return X, y


def climb(
    rng: np.random.Generator, pair: Pair, loss: Family, share: Callable[[Pair], Array], steps: int
) -> float:
    """Give the largest share of the bound that was reached."""
    best, reached = pair, share(pair)
    for _ in range(steps):
        child = mutated(rng, best, loss)
        new = share(child)
        better = new > reached
        best = {
            name: np.where(better.reshape(-1, *[1] * (values.ndim - 1)), child[name], values)
            for name, values in best.items()
        }
        reached = np.where(better, new, reached)
    return float(reached.max())


def every_loss() -> list[Family]:
    return [family(spec) for spec in LOSSES]
