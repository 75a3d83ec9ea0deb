"""The registry of losses: every class with a name, and one function to look it up.

It owns which losses exist and the widest ranges of labels; `docs/adding-a-loss.md` shows how to add
a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import get_args

from hdpvfl_mq.glm.families import binary, exponential, gamma, real  # noqa: F401 - their classes
from hdpvfl_mq.glm.families.base import Family
from schemas.model import LABEL_MAX, LossName, LossSpec


def _named(*kinds: type[Family]) -> Iterator[type[Family]]:
    for kind in kinds:
        if "name" in vars(kind):
            yield kind
        yield from _named(*kind.__subclasses__())


_BY_NAME = {member.name: member for member in _named(*Family.__subclasses__())}
# Fails on import if a name has no class or a class has no name.
assert set(_BY_NAME) == set(get_args(LossName)), "LossName and the classes differ"
FAMILIES: Mapping[LossName, type[Family]] = MappingProxyType(
    {name: _BY_NAME[name] for name in get_args(LossName)}
)

__all__ = ["FAMILIES", "Family", "family", "unclipped"]


def family(spec: LossSpec) -> Family:
    """The loss a run declares."""
    return FAMILIES[spec.name](spec)


def unclipped(spec: LossSpec) -> LossSpec:
    """The same loss without clipping labels or residuals, for runs and figures without noise.

    The range of positive labels is widened so that its middle, where descent starts, is the calm
    label, or below the calm label if the range would otherwise cut off declared labels.
    """
    loss, widest = family(spec), dict[str, float]()
    match loss.label_kind:
        case "real":
            widest = {"label_low": -LABEL_MAX, "label_high": LABEL_MAX}
        case "count":
            widest = {"label_high": LABEL_MAX}
        case "positive":
            low = min(loss.label_low, loss.calm_label**2 / LABEL_MAX)
            widest = {"label_low": low, "label_high": LABEL_MAX}
    return LossSpec(**{**dict(spec), "residual_clip": 1e9, **widest})
