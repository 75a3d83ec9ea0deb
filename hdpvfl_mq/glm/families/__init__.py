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

# Wide enough for any label; their geometric middle, where gamma_canonical starts, is 1.
_WIDEST: Mapping[Task, dict[str, float]] = MappingProxyType(
    {
        "binary": {},
        "real": {"label_low": -1e9, "label_high": 1e9},
        "count": {"label_high": 1e9},
        "positive": {"label_low": 1e-9, "label_high": 1e9},
    }
)

__all__ = ["FAMILIES", "Family", "Task", "family", "unclipped"]


def family(spec: LossSpec) -> Family:
    """The loss a run declares."""
    return FAMILIES[spec.name](spec)


def unclipped(spec: LossSpec) -> LossSpec:
    """The same loss with labels and residuals as they are: for runs and figures without noise."""
    widest = _WIDEST[FAMILIES[spec.name].task]
    return LossSpec(**{**dict(spec), "residual_clip": 1e9, **widest})
