"""The step of each penalty, its contraction of distances, and the ball that holds the weights.

It owns the four proximal steps, their values, their contraction factors (rho) and the refusal of
step sizes that break the argument; it knows nothing of losses, rows or parties.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, get_args

import numpy as np

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import RefusedError, SettingsError
from schemas.model import PenaltyName, PenaltySpec

# Covers the rounding errors of eta * (lambda + beta) and of its difference to one.
_ROUNDING = 2.0**-50


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

    @abstractmethod
    def _factor(self, eta: float, beta: float | None) -> float:
        """Rho of one step in exact arithmetic; `beta` is None if g does not depend on w."""

    def contraction(
        self, etas: Iterable[float], *, beta: float | None = None, has_free: bool = False
    ) -> float:
        """The largest rho of executed steps of these sizes, rounded up; at most 1.

        *Bound.* After a step, two weight vectors are at most rho times as far apart. `beta` is None
        for a passive party, whose gradient does not depend on w. The active party's gradient is
        that of a convex, beta-smooth function. A coordinate without penalty does not shrink:
        rho = 1.
        *Guarantee.* Refused if eta (beta + lambda) > 2: the step may then expand.
        """
        largest = 0.0
        for eta in set(etas):
            _refuse_long_step(eta, (beta or 0.0) + self.strength)
            factor = 1.0 if has_free else self._factor(eta, beta) + _ROUNDING
            largest = max(largest, factor)
        return min(1.0, largest)

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

    def _factor(self, eta: float, beta: float | None) -> float:
        return 1.0

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        return w - eta * g

    def _value(self, w: FloatVector) -> float:
        del w
        return 0.0


class L2(Penalty):
    """R = lambda / 2 |w|^2: w - eta (g + lambda w).

    *Bound*: at equal g a step scales distances by abs(1 - eta lambda). With the gradient of a
    convex, beta-smooth function the step's Jacobian has its eigenvalues between
    1 - eta (lambda + beta) and 1 - eta lambda.
    """

    name = "l2"

    def _factor(self, eta: float, beta: float | None) -> float:
        slow = abs(1.0 - eta * self.strength)
        return slow if beta is None else max(slow, abs(1.0 - eta * (beta + self.strength)))

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        return w - eta * (g + self.strength * w)

    def _value(self, w: FloatVector) -> float:
        return self.strength / 2.0 * float(w @ w)


class L1(Penalty):
    """R = lambda |w|_1: soft(w - eta g, eta lambda). *Bound*: no step enlarges a distance."""

    name = "l1"

    def _factor(self, eta: float, beta: float | None) -> float:
        return 1.0

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        return soft_threshold(w - eta * g, eta * self.strength)

    def _value(self, w: FloatVector) -> float:
        return self.strength * float(np.abs(w).sum())


class ElasticNet(Penalty):
    """R = lambda (|w|_1 + alpha / 2 |w|^2): soft(w - eta g, eta lambda) / (1 + eta lambda alpha).

    *Bound*: the soft threshold does not expand, so a step scales distances by at most
    1 / (1 + eta lambda alpha).
    """

    name = "elastic_net"

    def _factor(self, eta: float, beta: float | None) -> float:
        return 1.0 / (1.0 + eta * self.strength * self.mixing)

    def _step(self, w: FloatVector, g: FloatVector, eta: float) -> FloatVector:
        shrink = 1.0 + eta * self.strength * self.mixing
        return soft_threshold(w - eta * g, eta * self.strength) / shrink

    def _value(self, w: FloatVector) -> float:
        return self.strength * (float(np.abs(w).sum()) + self.mixing / 2.0 * float(w @ w))


_BY_NAME = {member.name: member for member in Penalty.__subclasses__()}
# Fails on import if a name has no class or a class has no name.
assert set(_BY_NAME) == set(get_args(PenaltyName)), "PenaltyName and the classes differ"
PENALTIES: Mapping[PenaltyName, type[Penalty]] = MappingProxyType(
    {name: _BY_NAME[name] for name in get_args(PenaltyName)}
)


def penalty(spec: PenaltySpec) -> Penalty:
    """The penalty a run declares."""
    return PENALTIES[spec.name](spec)


def _refuse_long_step(eta: float, curvature: float) -> None:
    if not (0.0 < eta < math.inf and 0.0 <= curvature < math.inf):
        raise SettingsError("eta must be positive; lambda and beta finite and not negative")
    if eta * curvature * (1.0 - _ROUNDING) > 2.0:
        raise RefusedError(
            f"step size {eta:g} is too large: eta * (beta + lambda) must not exceed 2, "
            f"so eta <= {2.0 / curvature:.6g}"
        )


def soft_threshold(w: FloatVector, threshold: float) -> FloatVector:
    """Move every coordinate towards zero by the threshold, stopping at zero."""
    return np.sign(w) * np.maximum(np.abs(w) - threshold, 0.0)


def project(w: FloatVector, k: float) -> FloatVector:
    """w / max(1, |w| / k): the nearest point of the ball of radius k.

    *Bound*: projection enlarges no distance. hypot neither overflows nor depends on how BLAS sums.
    """
    return w / max(1.0, math.hypot(*w.tolist()) / k)
