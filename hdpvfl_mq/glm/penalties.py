"""Penalties as one step each, and the norm ball the weights stay in.

It owns the four proximal steps and their values; it knows nothing of losses, rows or parties.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from schemas.model import PenaltyName, PenaltySpec


class Penalty(ABC):
    """A convex penalty R(w) and one step on loss + R."""

    name: ClassVar[PenaltyName]

    def __init__(self, spec: PenaltySpec) -> None:
        self.strength = spec.strength
        self.mixing = spec.mixing

    @abstractmethod
    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector: ...

    @abstractmethod
    def _value(self, w: FloatVector) -> float: ...

    def step(
        self, w: FloatVector, g: FloatVector, eta: float, free: tuple[int, ...] = ()
    ) -> FloatVector:
        """Move w against the gradient g of the loss; coordinates in `free` are not penalised."""
        stepped = self._step(w, g, eta)
        for index in free:
            stepped[index] = w[index] - eta * g[index]
        return stepped

    def value(self, w: FloatVector, free: tuple[int, ...] = ()) -> float:
        """R(w), without the coordinates in `free`."""
        return self._value(np.delete(w, free) if free else w)


class NoPenalty(Penalty):
    """R = 0: w - eta g. *Bound*: a step keeps distances."""

    name = "none"

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        return w - eta * g

    def _value(self, w: FloatVector) -> float:
        del w
        return 0.0


class L2(Penalty):
    """R = lambda / 2 |w|^2: w - eta (g + lambda w).

    *Bound*: at equal g a step scales distances by abs(1 - eta lambda).
    """

    name = "l2"

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        return w - eta * (g + self.strength * w)

    def _value(self, w: FloatVector) -> float:
        return self.strength / 2.0 * float(w @ w)


class L1(Penalty):
    """R = lambda |w|_1: soft(w - eta g, eta lambda). *Bound*: no step enlarges a distance."""

    name = "l1"

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        return soft_threshold(w - eta * g, eta * self.strength)

    def _value(self, w: FloatVector) -> float:
        return self.strength * float(np.abs(w).sum())


class ElasticNet(Penalty):
    """R = lambda (|w|_1 + alpha / 2 |w|^2): soft(w - eta g, eta lambda) / (1 + eta lambda alpha).

    *Bound*: at equal g a step scales distances by at most 1 / (1 + eta lambda alpha).
    """

    name = "elastic_net"

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        shrink = 1.0 + eta * self.strength * self.mixing
        return soft_threshold(w - eta * g, eta * self.strength) / shrink

    def _value(self, w: FloatVector) -> float:
        return self.strength * (float(np.abs(w).sum()) + self.mixing / 2.0 * float(w @ w))


_MEMBERS: tuple[type[Penalty], ...] = (NoPenalty, L2, L1, ElasticNet)
PENALTIES: Mapping[PenaltyName, type[Penalty]] = MappingProxyType({m.name: m for m in _MEMBERS})


def penalty(spec: PenaltySpec) -> Penalty:
    """The penalty a run declares."""
    return PENALTIES[spec.name](spec)


def soft_threshold(w: FloatVector, threshold: float) -> FloatVector:
    """Move every coordinate towards zero by the threshold, stopping there."""
    return np.sign(w) * np.maximum(np.abs(w) - threshold, 0.0)


def project(w: FloatVector, k: float) -> FloatVector:
    """w / max(1, |w| / k): the nearest point of the ball of radius k.

    *Bound*: it enlarges no distance. hypot neither overflows nor depends on how BLAS sums.
    """
    return w / max(1.0, math.hypot(*w.tolist()) / k)
