"""What the mechanism is given and what it makes of it, observed in the running code.

It owns the two places where the mechanism is listened to; it computes nothing about rows. The
second of two neighbours is given the first one's release: the guarantee speaks of neighbours that
have released the same so far, and then everything else they say must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.privacy import mechanism as mechanism_module
from hdpvfl_mq.privacy.mechanism import Mechanism
from schemas.privacy import Release

# Two draws of this many values agree by chance less than once in 2^40.
_VALUES, _RATIO = 4, 1024.0


class Leak(AssertionError):  # noqa: N818 - a finding, and the word for it
    """What left tells more about a row than was booked."""


@dataclass(frozen=True)
class Observed:
    """One release: its address, the integers before noise, and what left."""

    address: tuple[object, ...]
    lattice: np.ndarray
    release: Release
    stds: np.ndarray  # of each coordinate, in grid steps


@dataclass
class Tap:
    """Listens to the mechanisms of two neighbours in turn."""

    first: list[Observed] = field(default_factory=list)
    is_second: bool = False
    spent: float = 0.0  # sum over releases of the squared distance in standard deviations
    squares: float = 0.0  # of the noise, in variances
    values: int = 0
    told: dict[str, bytes] = field(default_factory=dict)
    _lattice: np.ndarray | None = None

    def released(self, address: tuple[object, ...], release: Release) -> Release:
        """Take one release down; the second neighbour sends what the first has sent."""
        lattice, self._lattice = self._lattice, None
        if lattice is None:  # exact values: the ledger says infinitely much
            if release.event.mechanism != "exact":
                raise Leak(f"{release.release_id} left without the mechanism's rounding")
            lattice = np.zeros(release.tensor.shape)
        stds = np.full(lattice.shape, release.noise_std / 2.0**release.exponent)
        seen = Observed(address, lattice, release, stds)
        if not self.is_second:
            self.first.append(seen)
            self._noise(seen)
            return release
        if not self.first:
            raise Leak(f"only one of two neighbours released {release.release_id}")
        return self._compared(self.first.pop(0), seen)

    def _compared(self, one: Observed, other: Observed) -> Release:
        if one.address != other.address or one.lattice.shape != other.lattice.shape:
            raise Leak(f"neighbours released {one.address} and {other.address}")
        mine, theirs = (seen.release.model_dump(exclude={"tensor"}) for seen in (one, other))
        if mine != theirs:
            raise Leak(f"{one.release.release_id}: neighbours pay differently")
        if one.release.event.mechanism == "exact":
            return one.release
        steps = (one.lattice - other.lattice) / one.stds
        self.spent += float(steps @ steps)
        self._independent(one, other)
        return one.release

    def _noise(self, seen: Observed) -> None:
        """Collect the noise, and see that one release id has one payload."""
        data = seen.release.tensor.data
        if self.told.setdefault(seen.release.release_id, data) != data:
            raise Leak(f"{seen.release.release_id} left twice, with two payloads")
        if seen.stds.size and seen.stds.min() > 0.0 and seen.release.tensor.dtype != "<f8":
            noise = (seen.release.tensor.array() - seen.lattice) / seen.stds
            self.squares, self.values = (
                self.squares + float(noise @ noise),
                self.values + noise.size,
            )

    def _independent(self, one: Observed, other: Observed) -> None:
        """Other values have other noise; the same values have the same bytes."""
        if not one.lattice.size or min(one.stds.min(), other.stds.min()) == 0.0:
            return
        noises = [seen.release.tensor.array() - seen.lattice for seen in (one, other)]
        is_same, had_same = (one.lattice == other.lattice).all(), (noises[0] == noises[1]).all()
        if is_same and not had_same:
            raise Leak(f"{one.release.release_id}: the same values again had other noise")
        by_chance = one.lattice.size < _VALUES or one.stds.min() < _RATIO
        if had_same and not is_same and not by_chance:
            raise Leak(f"{one.release.release_id}: the same noise on two values")

    def check_noise(self) -> None:
        """The noise is as wide as the releases say, by six deviations of its sample variance."""
        if (
            self.values >= 100
            and self.squares / self.values < 1.0 - 6.0 * (2.0 / self.values) ** 0.5
        ):
            raise Leak(f"the noise of {self.values} values is narrower than their releases say")


@contextmanager
def listening(tap: Tap) -> Iterator[None]:
    """Listen to every mechanism while the block runs."""
    release, on_lattice = Mechanism.release, mechanism_module._on_lattice

    def released(self, values, kind, round, transcript, **rest):
        made = release(self, values, kind, round, transcript, **rest)
        return tap.released((kind, round, transcript, rest.get("last_round", -1)), made)

    def rounded(values, plan):
        lattice = on_lattice(values, plan)
        tap._lattice = lattice.copy()  # the mechanism adds noise in place
        return lattice

    Mechanism.release, mechanism_module._on_lattice = released, rounded
    try:
        yield
    finally:
        Mechanism.release, mechanism_module._on_lattice = release, on_lattice
