"""Observes the inputs and outputs of the mechanism in the running code.

It owns the places where the mechanism is observed; it computes nothing about rows. The second of
two neighbours gets the release of the first: the guarantee is about neighbours with equal releases
so far, and then all their other messages must be equal too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.privacy import mechanism as mechanism_module
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.plan import NoisePlan
from hdpvfl_mq.privacy.table import WHOLE
from schemas.privacy import Release

# Two draws of this many values agree by chance less than once in 2^40.
_VALUES, _RATIO = 4, 1024.0


class Leak(AssertionError):  # noqa: N818 - a finding, and the word for it
    """What left tells more about a row than was booked."""


@dataclass(frozen=True)
class Observed:
    """One release: its address, what it was made from, and what left.

    `lattice` holds integers before Gaussian noise, places before bounded noise, or exact numbers.
    """

    address: tuple[object, ...]
    lattice: np.ndarray
    release: Release
    plan: NoisePlan

    @property
    def stds(self) -> np.ndarray:
        """Gaussian noise of each coordinate, in grid steps; zeros where there is none."""
        stds = np.full(self.lattice.shape, self.plan.ratio)
        if self.plan.symmetric:
            columns = (math.isqrt(8 * stds.size + 1) - 1) // 2
            stds[columns:] = self.plan.off_diagonal_ratio
        return stds if self.plan.bounded is None else np.zeros(self.lattice.shape)


@dataclass
class Tap:
    """Listens to the mechanisms of two neighbours in turn."""

    first: list[Observed] = field(default_factory=list)
    is_second: bool = False
    spent: float = 0.0  # sum over releases of the squared distance in standard deviations
    pure: float = 0.0  # sum over releases of the largest log ratio of two laws
    disclosed: int = 0  # releases in which the replaced row's exact score was told
    squares: float = 0.0  # of the noise, in variances
    values: int = 0
    hits: float = 0.0  # of bounded noise in its window, less those expected
    hit_variance: float = 0.0
    told: dict[str, bytes] = field(default_factory=dict)
    replaced: int = 0  # the row that differs, in the order of this run
    scored: np.ndarray = field(default_factory=lambda: np.arange(0))  # rows that may be disclosed
    _lattice: np.ndarray | None = None

    def released(
        self, address: tuple[object, ...], exact: np.ndarray, release: Release, plan: NoisePlan
    ) -> Release:
        """Take one release down; the second neighbour sends what the first has sent."""
        lattice, self._lattice = self._lattice, None
        if lattice is None:  # exact values: the ledger says infinitely much, or which rows
            if release.event.mechanism not in ("exact", "disclosed"):
                raise Leak(f"{release.release_id} left without the mechanism's rounding")
            lattice = np.array(exact)
        seen = Observed(address, lattice, release, plan)
        if not self.is_second:
            self.first.append(seen)
            self._noise(seen)
            return release
        if not self.first:
            raise Leak(f"only one of two neighbours released {release.release_id}")
        return self._compared(self.first.pop(0), seen)

    def _compared(self, one: Observed, other: Observed) -> Release:
        name = one.release.release_id
        if one.address != other.address or one.lattice.shape != other.lattice.shape:
            raise Leak(f"neighbours released {one.address} and {other.address}")
        mine, theirs = (seen.release.model_dump(exclude={"tensor"}) for seen in (one, other))
        if mine != theirs:
            raise Leak(f"{name}: neighbours pay differently")
        if one.release.event.mechanism == "exact":
            return one.release
        if one.release.event.mechanism == "disclosed":
            self._disclosed(one, other)
        elif one.plan.bounded is not None:
            self.pure += _loss(one.plan.bounded, one.lattice, other.lattice)
        else:
            steps = (one.lattice - other.lattice) / one.stds
            self.spent += float(steps @ steps)
        self._independent(one, other)
        return one.release

    def _disclosed(self, one: Observed, other: Observed) -> None:
        """Exact scores: of as many rows as are booked; only the replaced row's own may differ."""
        name, rows = one.release.release_id, one.release.event.disclosed_rows
        if not one.lattice.size == self.scored.size == rows:
            raise Leak(f"{name}: {one.lattice.size} exact scores, {rows} rows are booked")
        moved = self.scored[one.lattice != other.lattice]
        if set(moved.tolist()) - {self.replaced}:
            raise Leak(f"{name}: exact scores tell of a row that is not disclosed")
        self.disclosed += moved.size

    def _noise(self, seen: Observed) -> None:
        """Collect the noise, and see that one release id has one payload."""
        data, law = seen.release.tensor.data, seen.plan.bounded
        if self.told.setdefault(seen.release.release_id, data) != data:
            raise Leak(f"{seen.release.release_id} left twice, with two payloads")
        if law is not None:
            inside, chance = _in_window(law, seen.lattice, seen.release.tensor.array())
            self.hits += float((inside - chance).sum())
            self.hit_variance += float((chance * (1.0 - chance)).sum())
        elif seen.stds.size and seen.stds.min() > 0.0 and seen.release.tensor.dtype != "<f8":
            noise = (seen.release.tensor.array() - seen.lattice) / seen.stds
            self.squares += float(noise @ noise)
            self.values += noise.size
            _check_width(float(noise @ noise), noise.size)

    def _independent(self, one: Observed, other: Observed) -> None:
        """Other values have other noise; the same values have the same bytes."""
        if not one.lattice.size or one.release.event.mechanism == "disclosed":
            return
        arrays = [seen.release.tensor.array() for seen in (one, other)]
        is_same = (one.lattice == other.lattice).all()
        if is_same and not np.array_equal(*arrays):
            raise Leak(f"{one.release.release_id}: the same values again had other noise")
        if one.plan.bounded is not None or is_same or one.stds.min() < _RATIO:
            return
        noises = [array - seen.lattice for array, seen in zip(arrays, (one, other), strict=True)]
        if one.lattice.size >= _VALUES and (noises[0] == noises[1]).all():
            raise Leak(f"{one.release.release_id}: the same noise on two values")

    def check_noise(self) -> None:
        """The noise is as wide as the releases say, by six deviations of what was sampled."""
        _check_width(self.squares, self.values)
        if self.hits > 6.0 * max(self.hit_variance, 25.0) ** 0.5:
            raise Leak("bounded noise stays in its window more often than its law says")


def _check_width(squares: float, values: int) -> None:
    """Of too few values nothing is said."""
    if values >= 100 and squares / values < 1.0 - 6.0 * (2.0 / values) ** 0.5:
        raise Leak(f"the noise of {values} values is narrower than their releases say")


def _loss(law: BoundedNoise, one: np.ndarray, other: np.ndarray) -> float:
    """The largest log ratio of what two lists of places can become, number by number."""
    total = 0.0
    for first, second in zip(one.tolist(), other.tolist(), strict=True):
        if first == second:
            continue
        if law.kind != "two_point":  # windows of one size that are not the same
            total += math.log(law.weight_in / law.weight_out)
            continue
        both = [law.weights(place) for place in (first, second)]
        total += max(abs(math.log(a / b)) for a, b in zip(*both, strict=True))
    return total


def _in_window(
    law: BoundedNoise, places: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which points are the likely ones, and how often they should be."""
    if law.kind == "two_point":
        ones = np.array([law.weights(int(place))[1] / WHOLE for place in places])
        return np.where(ones >= 0.5, points == 1, points == 0), np.maximum(ones, 1.0 - ones)
    inside = (points.astype(np.int64) - places) % law.points < law.window
    return inside, np.full(places.shape, law.weight_in * law.window / WHOLE)


@contextmanager
def listening(tap: Tap) -> Iterator[None]:
    """Listen to every mechanism while the block runs."""
    release, on_lattice = Mechanism.release, mechanism_module._on_lattice
    placed = BoundedNoise.places

    def released(self, values, kind, round, transcript, **rest):
        made = release(self, values, kind, round, transcript, **rest)
        address = kind, round, transcript, rest.get("last_round", -1), rest.get("seal")
        return tap.released(address, values.expose(), made, self._plans[kind])

    def rounded(values, plan, allocate):
        lattice = on_lattice(values, plan, allocate)
        tap._lattice = lattice.copy()  # the mechanism adds noise in place
        return lattice

    def in_places(self, values):
        tap._lattice = placed(self, values)
        return tap._lattice

    Mechanism.release, mechanism_module._on_lattice = released, rounded
    BoundedNoise.places = in_places
    try:
        yield
    finally:
        Mechanism.release, mechanism_module._on_lattice = release, on_lattice
        BoundedNoise.places = placed
