"""Many pairs of neighbouring runs at once, in plain numpy, to attack the sensitivity bounds.

It owns a second, independent implementation of one party's side of the protocol, with a leading
axis over runs; it knows no noise. The received values are inputs, because the adversary may send
anything; so plain arithmetic gives the distance between two runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.glm.penalties import penalty
from hdpvfl_mq.methods.descent.bound import ActiveBounds, Bounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.methods.descent.sensitivity import profile
from schemas.model import PenaltyName, PenaltySpec

Array = np.ndarray
Residual = Callable[[Array, Array], Array]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A residual with its bound L, its smoothness beta and the range of its labels."""

    residual: Residual
    bound: float
    smoothness: float
    labels: tuple[float, float]
    binary: bool = False


def _clipped(residual: Residual, bound: float) -> Residual:
    return lambda theta, y: np.clip(residual(theta, y), -bound, bound)


def _exp(theta: Array) -> Array:
    return np.exp(np.clip(theta, -30.0, 30.0))


LOSSES = {
    "logistic": Loss(
        residual=lambda theta, y: -y / (1.0 + _exp(y * theta)),
        bound=1.0,
        smoothness=0.25,
        labels=(-1.0, 1.0),
        binary=True,
    ),
    "least_squares": Loss(
        residual=_clipped(lambda theta, y: 2.0 * (theta - y), 6.0),
        bound=6.0,
        smoothness=2.0,
        labels=(-3.0, 3.0),
    ),
    "huber": Loss(
        residual=lambda theta, y: np.clip(theta - y, -1.0, 1.0),
        bound=1.0,
        smoothness=1.0,
        labels=(-3.0, 3.0),
    ),
    "squared_hinge": Loss(
        residual=_clipped(lambda theta, y: -2.0 * y * np.maximum(0.0, 1.0 - y * theta), 2.0),
        bound=2.0,
        smoothness=2.0,
        labels=(-1.0, 1.0),
        binary=True,
    ),
    "poisson": Loss(
        residual=_clipped(lambda theta, y: _exp(theta) - y, 4.0),
        bound=4.0,
        smoothness=8.0,
        labels=(0.0, 4.0),
    ),
    "gamma_log": Loss(
        residual=_clipped(lambda theta, y: 1.0 - y * _exp(-theta), 3.0),
        bound=3.0,
        smoothness=4.0,
        labels=(0.1, 3.0),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Public numbers of a run; `free` coordinates (the last ones) are not penalised."""

    schedule: PublicSchedule
    penalty: PenaltyName
    lam: float
    alpha: float
    radius: float
    clip: float = 1.0
    local_steps: int = 1
    free: int = 0

    @property
    def eta(self) -> float:
        assert isinstance(self.schedule.eta, float)
        return self.schedule.eta

    @property
    def rows(self) -> int:
        return sum(self.schedule.batch_rows)

    def batch(self, t: int) -> slice:
        index = t % len(self.schedule.batch_rows)
        start = sum(self.schedule.batch_rows[:index])
        return slice(start, start + self.schedule.batch_rows[index])

    def rho(self, beta: float | None) -> float:
        spec = PenaltySpec(name=self.penalty, strength=self.lam, mixing=self.alpha)
        return penalty(spec).contraction((self.eta,), beta=beta, has_free=self.free > 0)

    def passive(self) -> PassiveBounds:
        return PassiveBounds(radius=self.radius, clip_received=self.clip, rho=self.rho(None))

    def active(self, loss: Loss) -> ActiveBounds:
        return ActiveBounds(
            radius=self.radius,
            residual_bound=loss.bound,
            smoothness=loss.smoothness,
            rho=self.rho(loss.smoothness),
            rounding=0.0,  # of numbers near one, as here: covered by the least slack
            local_steps=self.local_steps,
        )

    def bound(self, bounds: Bounds, grid: float) -> Array:
        return profile(bounds, self.schedule, grid=grid).cumulative


def step(w: Array, g: Array, setting: Setting) -> Array:
    """One penalised step and the projection, for every run."""
    eta, lam = setting.eta, setting.lam
    moved = w - eta * g
    if setting.penalty == "l2":
        after = moved - eta * lam * w
    elif setting.penalty == "none":
        after = moved
    else:
        after = np.sign(moved) * np.maximum(0.0, np.abs(moved) - eta * lam)
        if setting.penalty == "elastic_net":
            after = after / (1.0 + eta * lam * setting.alpha)
    if setting.free:
        after[:, -setting.free :] = moved[:, -setting.free :]
    norm = np.sqrt((after * after).sum(axis=1, keepdims=True))
    return after / np.maximum(1.0, norm / setting.radius)


def passive_releases(
    X: Array, received: Array, setting: Setting, *, skipped: frozenset[int] = frozenset()
) -> list[Array]:
    """Scores of every round; X is (runs, rows, columns), received is (runs, rounds, rows).

    In a skipped round the update does not happen.
    """
    w, releases = np.zeros((len(X), X.shape[2])), []
    for t in range(setting.schedule.rounds):
        rows = X[:, setting.batch(t)]
        releases.append(np.einsum("nbd,nd->nb", rows, w))
        message = np.clip(received[:, t, setting.batch(t)], -setting.clip, setting.clip)
        if t not in skipped:
            w = step(w, np.einsum("nb,nbd->nd", message, rows) / rows.shape[1], setting)
    return releases


def active_releases(
    X: Array, y: Array, received: Array, setting: Setting, loss: Loss, *, released_after: int = 0
) -> list[Array]:
    """Residuals of every round, released before the local steps unless told otherwise."""
    w, releases = np.zeros((len(X), X.shape[2])), []
    for t in range(setting.schedule.rounds):
        rows, labels = X[:, setting.batch(t)], y[:, setting.batch(t)]
        for local in range(setting.local_steps + 1):
            theta = np.einsum("nbd,nd->nb", rows, w) + received[:, t, setting.batch(t)]
            h = loss.residual(theta, labels)
            if local == released_after:
                releases.append(h)
            if local < setting.local_steps:
                w = step(w, np.einsum("nb,nbd->nd", h, rows) / rows.shape[1], setting)
    return releases


def squared_moves(first: list[Array], second: list[Array], grid: float) -> Array:
    """Cumulative squared distance of two runs' releases after quantising, (runs, rounds)."""
    quantise = (lambda x: np.rint(x / grid) * grid) if grid else (lambda x: x)
    moves = [
        ((quantise(a) - quantise(b)) ** 2).sum(axis=1) for a, b in zip(first, second, strict=True)
    ]
    return np.cumsum(np.stack(moves, axis=1), axis=1)


def unit_rows(X: Array) -> Array:
    return X / np.maximum(1.0, np.sqrt((X * X).sum(axis=-1, keepdims=True)))
