"""A peer's release becomes numbers: checked against its public plan, scaled, or refused.

It owns these checks and the largest value that a plan allows; it makes no release and knows no
role, no message and no store.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.mechanism import (
    LARGEST_INTEGER,
    grid_of,
    released_values,
    unsealed_values,
)
from hdpvfl_mq.privacy.plan import NoisePlan
from schemas.privacy import Release


def receive_planned(
    release: Release, plan: NoisePlan, *, count: int, allocate: Allocate = np.empty
) -> NDArray[np.float64]:
    """The numbers of a peer's release; PeerError if its public plan cannot have made them.

    Works for every kind of noise; points of bounded noise are decoded without bias.
    """
    if plan.bounded is not None:
        return plan.bounded.decode(receive_bounded(release, plan.bounded, count=count))
    return receive(release, count=count, bound=largest_value(plan), allocate=allocate)


def receive(
    release: Release, *, count: int, bound: float, allocate: Allocate = np.empty
) -> NDArray[np.float64]:
    """Scale a peer's release to numbers; PeerError if its plan cannot have made them.

    `bound` is the largest absolute value that the plan allows: see `largest_value`.
    """
    values = release.tensor.array()
    if values.shape != (count,):
        raise PeerError(f"{release.release_id}: expected {count} values")
    exact = release.tensor.dtype == "<f8"
    if release.event.pure_units:
        raise PeerError(f"{release.release_id}: expected noised numbers, not points")
    if exact and release.event.mechanism == "lattice_gaussian":
        raise PeerError(f"{release.release_id}: a noised release carries integers")
    if release.tensor.dtype == "|u1":
        raise PeerError(f"{release.release_id}: a release carries signed integers")
    # Scaling by a power of two is exact, so the largest integer speaks for the scaled numbers.
    largest = max(-values.min().item(), values.max().item()) if count else 0
    if not exact and largest > LARGEST_INTEGER:
        raise PeerError(f"{release.release_id}: a value is beyond 2^62")
    if largest * grid_of(release) > bound:
        raise PeerError(f"{release.release_id}: a value is beyond its public bound")
    return released_values(release, allocate)


def receive_bounded(release: Release, noise: BoundedNoise, *, count: int) -> NDArray[np.int64]:
    """The points of a peer's bounded release; PeerError if its law cannot have made them.

    `noise.decode` turns them into unbiased numbers; `noise.variance` is the noise of those.
    """
    values = release.tensor.array()
    if values.shape != (count,):
        raise PeerError(f"{release.release_id}: expected {count} values")
    if release.event.mechanism != noise.kind or release.tensor.dtype in ("<f8", "|u1"):
        raise PeerError(f"{release.release_id}: expected points of {noise.kind}")
    if count and not 0 <= int(values.min()) <= int(values.max()) < noise.points:
        raise PeerError(f"{release.release_id}: a point is not one of {noise.points}")
    return values.astype(np.int64)


def receive_scores(
    release: Release, plan: NoisePlan, key: bytes, *, count: int
) -> NDArray[np.float64]:
    """The scores of one answer, in units of its scale; PeerError if they do not match its plan."""
    values = unsealed_values(release, key)
    declared = (release.noise_std, release.exponent, release.event.mechanism)
    if declared != (plan.noise_std, plan.exponent, plan.mechanism):
        raise PeerError(f"{release.release_id}: not the noise of the plan")
    if values.shape != (count,):
        raise PeerError(f"{release.release_id}: expected {count} values")
    if count and float(np.abs(values).max()) > largest_value(plan):
        raise PeerError(f"{release.release_id}: a value is beyond its public bound")
    return values


def largest_value(plan: NoisePlan) -> float:
    """Bound the values of a release of this plan: the noise tables end at 14 deviations."""
    return plan.value_bound + 2.0**plan.exponent + 32.0 * plan.noise_std
