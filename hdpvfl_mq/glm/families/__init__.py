"""The registry of losses: whatever class states a name, and one way to get one.

It owns which losses exist and the widest ranges of labels; `docs/adding-a-loss.md` shows how to add
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import get_args

from hdpvfl_mq.glm.families import binary, exponential, gamma, real  # noqa: F401 - their classes
from hdpvfl_mq.glm.families.base import Family
from schemas.model import LabelKind, LossName, LossSpec


def _named(*kinds: type[Family]) -> Iterator[type[Family]]:
    for kind in kinds:
        if "name" in vars(kind):
            yield kind
        yield from _named(*kind.__subclasses__())


_BY_NAME = {member.name: member for member in _named(*Family.__subclasses__())}
# A name without a class stops here, at import.
FAMILIES: Mapping[LossName, type[Family]] = MappingProxyType(
    {name: _BY_NAME[name] for name in get_args(LossName)}
)

# Wide enough for any label; their geometric middle, where gamma_canonical starts, is 1.
_WIDEST: Mapping[LabelKind, dict[str, float]] = MappingProxyType(
    {
        "binary": {},
        "real": {"label_low": -1e9, "label_high": 1e9},
        "count": {"label_high": 1e9},
        "positive": {"label_low": 1e-9, "label_high": 1e9},
    }
)

__all__ = ["FAMILIES", "Family", "family", "unclipped"]


def family(spec: LossSpec) -> Family:
    """The loss a run declares."""
    return FAMILIES[spec.name](spec)


def unclipped(spec: LossSpec) -> LossSpec:
    """The same loss with labels and residuals as they are: for runs and figures without noise."""
    widest = _WIDEST[FAMILIES[spec.name].label_kind]
    return LossSpec(**{**dict(spec), "residual_clip": 1e9, **widest})
