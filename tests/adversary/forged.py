"""Releases of a peer that breaks the rules: any numbers, in any form a receiver might accept.

It owns how the numbers of an act become a release; it knows no role and no state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.privacy import mechanism
from hdpvfl_mq.privacy.plan import NoisePlan
from hdpvfl_mq.privacy.receiving import largest_value
from schemas.ids import COORDINATOR, release_id
from schemas.privacy import SCALE_MAX, SCALE_MIN, Release, SpendEvent
from schemas.tensor import Tensor

FLAWS = 13  # what can be wrong with a release, and nothing


@dataclass(frozen=True)
class Act:
    """One move: its name, who makes it, how far it departs from the protocol, its numbers."""

    name: str
    sender: str = COORDINATOR
    shift: int = 0  # of a round; 0 is in turn
    flaw: int = 0  # 0 is as the protocol wants it; other numbers spoil a field
    values: np.ndarray = field(default_factory=lambda: np.zeros(1))  # each in [-1, 1]


def made(act: Act, name: str, plan: NoisePlan, count: int) -> Release:
    """So many numbers as a release of this plan, or spoilt as the act's flaw says."""
    if act.flaw == 5:
        name = release_id("other-run", act.sender, "share", 0)
    exponent = 60 if act.flaw == 4 else plan.exponent
    return Release(
        release_id=name,
        tensor=_tensor(act, plan, count, exponent),
        exponent=exponent,
        noise_std=1e18 if act.flaw == 3 else 1.0,
        scale={10: SCALE_MAX, 11: SCALE_MIN, 12: 1e5}.get(act.flaw, 1.0),
        event=_event(act, name, plan),
    )


def sealed(release: Release, key: bytes) -> Release:
    """The same numbers under a key that both sides have; any words where they are no floats."""
    values = release.tensor.array()
    if release.tensor.dtype != "<f8":
        values = values.astype(np.float64) * 2.0**release.exponent
    tensor = Tensor.of(mechanism._sealed(np.asarray(values, dtype=np.float64), key))
    return release.model_copy(update={"tensor": tensor})


def _event(act: Act, name: str, plan: NoisePlan) -> SpendEvent:
    law = plan.bounded if act.flaw not in (2, 7) else None
    kind = "lattice_gaussian" if law is None else law.kind
    return SpendEvent(
        release_id=name,
        round=0,
        mechanism="exact" if act.flaw in (6, 7) and law is None else kind,
        mu2_units=0,
        tau_units=0,
        pure_units=0 if law is None else law.pure_units,
    )


def _tensor(act: Act, plan: NoisePlan, count: int, exponent: int) -> Tensor:
    numbers = np.resize(act.values, count + (act.flaw == 1))
    if plan.bounded is not None and act.flaw not in (2, 7, 8, 9):
        points = plan.bounded.points - 1 + (act.flaw == 6)
        return Tensor.of(np.rint((numbers + 1.0) / 2.0 * points).astype(np.int64))
    bound = min(largest_value(plan), 1e6)
    numbers = numbers * bound * (1.0 - 2.0**-40)
    if act.flaw in (2, 6):  # floats; with 6 they claim to be exact
        return Tensor.of(numbers)
    if act.flaw == 7:
        return Tensor.of(numbers * 1e300)
    if act.flaw == 8:
        return Tensor.of(np.full(numbers.size, 2**62 + 1, dtype=np.int64))
    if act.flaw == 9:
        return Tensor.of(np.full(numbers.size, 255, dtype=np.uint8))
    steps = np.clip(numbers / 2.0**exponent, -(2.0**61), 2.0**61)
    return Tensor.of(np.trunc(steps).astype(np.int64))
