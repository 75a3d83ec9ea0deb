"""The registry of losses: one line each, one way to get one.

It owns which losses exist; `docs/adding-a-loss.md` shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hdpvfl_mq.glm.families.base import Family, Task
from hdpvfl_mq.glm.families.binary import Logistic, SquaredHinge
from hdpvfl_mq.glm.families.exponential import Bernoulli, GammaCanonical, Normal, Poisson
from hdpvfl_mq.glm.families.gamma import Gamma
from hdpvfl_mq.glm.families.real import Huber, LeastSquares
from schemas.model import LossName, LossSpec

_MEMBERS: tuple[type[Family], ...] = (
    Logistic,
    LeastSquares,
    Huber,
    SquaredHinge,
    Poisson,
    Gamma,
    GammaCanonical,
    Normal,
    Bernoulli,
)
FAMILIES: Mapping[LossName, type[Family]] = MappingProxyType({m.name: m for m in _MEMBERS})

__all__ = ["FAMILIES", "Family", "Task", "family"]


def family(spec: LossSpec) -> Family:
    """The loss a run declares."""
    return FAMILIES[spec.name](spec)
