"""The only way out: un-noised values in, a `Release` with its price out.

It owns quantising, adding noise and pricing, and the reading of a release at the receiver; it knows
no role, no message and no store. Nothing else in the project builds a `Release`; a test reads the
syntax tree for that.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import PeerError, RefusedError, SettingsError
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.noise import SEED_BYTES, ladder, stream_key, stream_words
from hdpvfl_mq.privacy.plan import NoisePlan
from schemas import ids
from schemas.privacy import BoundedKind, Release, SpendEvent
from schemas.tensor import Tensor

LARGEST_INTEGER = 2**62


class Mechanism:
    """One party's noise in one run: a pure function of the seed, the plans and the address.

    `plans` has one for each kind of release.
    """

    __slots__ = ("__seed", "_party", "_plans", "_run")

    def __init__(self, party: str, run: str, seed: bytes, plans: Mapping[str, NoisePlan]) -> None:
        if len(seed) != SEED_BYTES:
            raise SettingsError("a noise seed has 32 bytes")
        self._party, self._run, self._plans = party, run, plans
        self.__seed = seed

    def __repr__(self) -> str:
        return f"<Mechanism of {self._party} in {self._run}>"

    def release(
        self,
        values: Unreleased,
        kind: str,
        round: int,
        transcript: bytes,
        *,
        last_round: int = -1,
        seal: bytes | None = None,
        scale: float = 1.0,
    ) -> Release:
        """Add noise to the values of one round and price them.

        `last_round` is the last round this party released in this run, -1 if none: rounds it
        passed over are paid with this release, because their share is in the plan's sums. `seal`
        is a key for values that leave without noise and concern one receiver alone; `scale` is
        what the receiver multiplies by, and may depend on earlier releases only.
        *Guarantee.* The same arguments give the same bytes; any other address or value gives
        independent noise. What leaves is within the plan's bound for every input, NaN included.
        """
        plan = self._plans[kind]
        if not -1 <= last_round < round < plan.rounds:
            raise RefusedError(
                f"round {round} after round {last_round} is not in a plan of {plan.rounds} rounds"
            )
        release_id = ids.release_id(self._run, self._party, kind, round)
        if plan.bounded is not None:
            places = plan.bounded.places(values.expose())
            # One stream under two laws would name the labels that one keeps and the other turns.
            law = repr(plan.bounded).encode()
            key = self._key(release_id, round, transcript, places, law)
            tensor = Tensor.smallest(_points(places, plan.bounded, key))
        elif plan.guarantee == "none" or plan.disclosed_rows:
            exact = values.expose()
            tensor = Tensor.of(exact if seal is None else _sealed(exact, seal))
        else:
            lattice = _on_lattice(values.expose(), plan)
            key = self._key(release_id, round, transcript, lattice)
            tensor = Tensor.smallest(_noised(lattice, plan, key))
        return Release(
            release_id=release_id,
            tensor=tensor,
            exponent=plan.exponent,
            noise_std=plan.noise_std,
            scale=scale,
            event=_event(plan, release_id, round, last_round),
        )

    def _key(
        self,
        release_id: str,
        round: int,
        transcript: bytes,
        quantised: NDArray[np.int64],
        *law: bytes,
    ) -> bytes:
        """The address of one release's noise, the hash of the quantised values included."""
        return stream_key(
            self.__seed,
            self._party.encode(),
            self._run.encode(),
            round.to_bytes(8, "little"),
            release_id.encode(),
            transcript,
            hashlib.sha256(quantised.data).digest(),
            *law,
        )


def _points(places: NDArray[np.int64], noise: BoundedNoise, key: bytes) -> NDArray[np.int64]:
    """Pass places through a bounded law, each by itself.

    *Guarantee.* Replacing one row moves one number, so the release is pure epsilon-DP with the
    epsilon that is booked, for every input.
    """
    points = np.empty(len(places), dtype="<i8")
    for part in chunks(len(places)):
        # The high words of all samples, then the low ones, as the ladder reads them.
        high, low = (
            stream_words(key, part.stop - part.start, first=half * len(places) + part.start)
            for half in (0, 1)
        )
        points[part] = noise.draw(places[part], high, low)
    return points


def _noised(lattice: NDArray[np.int64], plan: NoisePlan, key: bytes) -> NDArray[np.int64]:
    if not plan.symmetric:
        lattice += ladder(plan.ratio).sample(lattice.size, key)
        return lattice
    columns = (math.isqrt(8 * lattice.size + 1) - 1) // 2
    lattice[:columns] += ladder(plan.ratio).sample(columns, key)
    off = stream_key(key, b"off the diagonal")
    lattice[columns:] += ladder(plan.off_diagonal_ratio).sample(lattice.size - columns, off)
    return lattice


def _on_lattice(values: FloatVector, plan: NoisePlan) -> NDArray[np.int64]:
    """The nearest integers, a chunk at a time: a batch may be all rows there are."""
    grid = 2.0**plan.exponent
    bound = min(plan.value_bound, LARGEST_INTEGER / 2 * grid)
    lattice = np.empty(len(values), dtype="<i8")
    for part in chunks(len(values)):
        # Clipping costs nothing where the bound holds, and keeps the price where code is wrong.
        inside = np.clip(np.nan_to_num(values[part], nan=0.0), -bound, bound)
        lattice[part] = np.rint(inside / grid).astype(np.int64)
    return lattice


def _event(plan: NoisePlan, release_id: str, round: int, last_round: int) -> SpendEvent:
    if plan.infinite:
        mu2, tau = 0, 0
    else:
        mu2, tau = plan.mu2_cumulative[round], plan.tau_cumulative[round]
        if last_round >= 0:
            mu2 -= plan.mu2_cumulative[last_round]
            tau -= plan.tau_cumulative[last_round]
    return SpendEvent(
        release_id=release_id,
        round=round,
        mechanism=_mechanism(plan),
        mu2_units=mu2,
        tau_units=tau,
        pure_units=0 if plan.bounded is None else plan.bounded.pure_units,
        disclosed_rows=plan.disclosed_rows,
    )


def _mechanism(
    plan: NoisePlan,
) -> Literal["exact", "disclosed", "lattice_gaussian", BoundedKind]:
    if plan.bounded is not None:
        return plan.bounded.kind
    if plan.disclosed_rows:
        return "disclosed"
    return "exact" if plan.infinite else "lattice_gaussian"


def _sealed(values: FloatVector, key: bytes) -> NDArray[np.int64]:
    """Numbers under a stream that is used once; that nobody changed them, signatures show."""
    words = np.ascontiguousarray(values, dtype="<f8").view("<u8") ^ stream_words(key, len(values))
    return words.view("<i8")


def unsealed(release: Release, key: bytes) -> Release:
    """A sealed release as its receiver reads it; PeerError if it does not hold finite numbers."""
    words = release.tensor.array()
    if words.dtype != np.dtype("<i8") or words.ndim != 1:
        raise PeerError(f"{release.release_id}: exact scores travel sealed")
    values = (words.view("<u8") ^ stream_words(key, len(words))).view("<f8")
    if not np.isfinite(values).all():
        raise PeerError(f"{release.release_id}: sealed for somebody else")
    return Release(**{**dict(release), "tensor": Tensor.of(values)})


def stored_release(stored: bytes) -> Release:
    """A release that was written down as JSON; ValueError if these bytes are none."""
    return Release.model_validate_json(stored)


def receive_planned(release: Release, plan: NoisePlan, *, count: int) -> NDArray[np.float64]:
    """The numbers of a peer's release under its public plan, whatever the noise; else PeerError.

    Points of bounded noise are decoded without bias.
    """
    if plan.bounded is not None:
        return plan.bounded.decode(receive_bounded(release, plan.bounded, count=count))
    return receive(release, count=count, bound=largest_value(plan))


def receive(release: Release, *, count: int, bound: float) -> NDArray[np.float64]:
    """Scale a peer's release to numbers, refusing what its plan cannot have made.

    `bound` is the largest absolute value a plan allows: see `largest_value`.
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
    if not exact and count and max(-int(values.min()), int(values.max())) > LARGEST_INTEGER:
        raise PeerError(f"{release.release_id}: a value is beyond 2^62")
    scaled = released_values(release)
    if count and float(np.abs(scaled).max()) > bound:
        raise PeerError(f"{release.release_id}: a value is beyond its public bound")
    return scaled


def receive_bounded(release: Release, noise: BoundedNoise, *, count: int) -> NDArray[np.int64]:
    """The points of a peer's bounded release, refusing what its law cannot have made.

    `noise.decode` makes unbiased numbers of them, `noise.variance` says how noisy these are.
    """
    values = release.tensor.array()
    if values.shape != (count,):
        raise PeerError(f"{release.release_id}: expected {count} values")
    if release.event.mechanism != noise.kind or release.tensor.dtype in ("<f8", "|u1"):
        raise PeerError(f"{release.release_id}: expected points of {noise.kind}")
    if count and not 0 <= int(values.min()) <= int(values.max()) < noise.points:
        raise PeerError(f"{release.release_id}: a point is not one of {noise.points}")
    return values.astype(np.int64)


def released_values(release: Release) -> NDArray[np.float64]:
    """The numbers a release stands for, but for its scale."""
    values = release.tensor.array()
    exact = release.tensor.dtype == "<f8"
    return values.astype(np.float64) * (1.0 if exact else 2.0**release.exponent)


def largest_value(plan: NoisePlan) -> float:
    """Bound what a release of this plan can hold: the noise tables end at 14 deviations."""
    return plan.value_bound + 2.0**plan.exponent + 32.0 * plan.noise_std
