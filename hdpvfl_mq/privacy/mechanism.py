"""The only way out: un-noised values in, a `Release` with its price out.

It owns quantising, adding noise, pricing and sealing; it knows no role, no message and no store. A
receiver checks a release in receiving.py. Nothing else in the project builds a `Release`; a test
reads the syntax tree to enforce that.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import CHUNK_ROWS, Allocate, chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.errors import PeerError, RefusedError, SettingsError
from hdpvfl_mq.privacy.bounded import BoundedNoise
from hdpvfl_mq.privacy.noise import SEED_BYTES, ladder, stream_key, stream_words
from hdpvfl_mq.privacy.plan import NoisePlan
from schemas import ids
from schemas.privacy import Release, SpendEvent
from schemas.tensor import Tensor

LARGEST_INTEGER = 2**62
SEAL_WORDS = 2  # words of the tag in front of sealed numbers


class Mechanism:
    """One party's noise in one run: a pure function of the seed, the plans and the address.

    `plans` has one plan for each kind of release.
    """

    __slots__ = ("__seed", "_party", "_plans", "_run")

    def __init__(self, party: str, run: str, seed: bytes, plans: Mapping[str, NoisePlan]) -> None:
        if len(seed) != SEED_BYTES:
            raise SettingsError("a noise seed has 32 bytes")
        self._party, self._run, self._plans = party, run, plans
        self.__seed = seed

    def __repr__(self) -> str:
        return f"<Mechanism of {self._party} in {self._run}>"

    def release(  # noqa: PLR0913 - an address, a price, and two ways to hold many values
        self,
        values: Unreleased,
        kind: str,
        round: int,
        transcript: bytes,
        *,
        last_round: int = -1,
        seal: bytes | None = None,
        scale: float = 1.0,
        allocate: Allocate = np.empty,
        engine: Engine | None = None,
    ) -> Release:
        """Add noise to the values of one round and price them.

        `last_round` is the last round in which this party released in this run, -1 if none. This
        release also pays for skipped rounds, because the plan's sums include them. `seal` encrypts
        values without noise for their only receiver. `scale` is the receiver's multiplier and may
        depend on earlier releases only. `allocate` makes every array with an entry for each value.
        An engine draws the noise of many values, with the same bits.
        *Guarantee.* The same arguments give the same bytes; any other address or value gives
        independent noise. Values are within the plan's bound for every input, NaN included.
        """
        plan = self._plans[kind]
        if not -1 <= last_round < round < plan.rounds:
            raise RefusedError(
                f"round {round} after round {last_round} is not in a plan of {plan.rounds} rounds"
            )
        release_id = ids.release_id(self._run, self._party, kind, round)
        key = partial(self._key, release_id, round, transcript, plan)
        return Release(
            release_id=release_id,
            tensor=_tensor(values.expose(), plan, key, seal=seal, allocate=allocate, engine=engine),
            exponent=plan.exponent,
            noise_std=plan.noise_std,
            scale=scale,
            event=_event(plan, release_id, round, last_round),
        )

    def answer(
        self,
        population: Unreleased | Release,
        places: NDArray[np.int64],
        number: int,
        *,
        seal: bytes,
        scale: float,
    ) -> Release:
        """Select some people's scores from those of a session and seal them for the asking party.

        `population` holds the session's scores: exact if they are disclosed, else one noised
        release of all of them, so that a person who is asked for twice has the same noise twice.
        *Guarantee.* The event is the price of one person's score; everybody else pays nothing.
        """
        plan = self._plans["score"]
        if plan.disclosed_rows:
            assert isinstance(population, Unreleased)
            values = population.expose()[places]
        else:
            assert isinstance(population, Release)
            values = population.tensor.array()[places].astype(np.float64) * grid_of(population)
        release_id = ids.release_id(self._run, self._party, "score", number)
        event = dict(_event(plan, release_id, 0, -1))
        event["disclosed_rows"] = len(places) if plan.disclosed_rows else 0
        return Release(
            release_id=release_id,
            tensor=Tensor.of(_sealed(values, seal)),
            exponent=plan.exponent,
            noise_std=plan.noise_std,
            scale=scale,
            event=SpendEvent(**event),
        )

    def _key(
        self,
        release_id: str,
        round: int,
        transcript: bytes,
        plan: NoisePlan,
        quantised: NDArray[np.int64],
    ) -> bytes:
        """The address of one release's noise; it includes the law and the quantised values.

        One stream under two laws would reveal the values: two widths of the same noise differ by a
        known function of that noise, and one randomised response may keep a label that the other
        flips.
        """
        return stream_key(
            self.__seed,
            self._party.encode(),
            self._run.encode(),
            round.to_bytes(8, "little"),
            release_id.encode(),
            transcript,
            hashlib.sha256(quantised.data).digest(),
            _law(plan),
        )


def _tensor(
    values: FloatVector,
    plan: NoisePlan,
    key: Callable[[NDArray[np.int64]], bytes],
    *,
    seal: bytes | None,
    allocate: Allocate,
    engine: Engine | None,
) -> Tensor:
    """The numbers that leave; `key` gives the noise key of quantised values."""
    if plan.bounded is not None:
        places = plan.bounded.places(values)
        return Tensor.smallest(_points(places, plan.bounded, key(places), engine), allocate)
    if plan.guarantee == "none" or plan.disclosed_rows:
        return Tensor.of(values if seal is None else _sealed(values, seal))
    lattice = _on_lattice(values, plan, allocate)
    return Tensor.smallest(_noised(lattice, plan, key(lattice), engine), allocate)


def _law(plan: NoisePlan) -> bytes:
    """Everything that determines how a stream becomes noise."""
    if plan.bounded is not None:
        return repr(plan.bounded).encode()
    shape = "symmetric" if plan.symmetric else "plain"
    return f"gaussian {plan.noise_std.hex()} {plan.exponent} {shape}".encode()


def _points(
    places: NDArray[np.int64], noise: BoundedNoise, key: bytes, engine: Engine | None
) -> NDArray[np.int64]:
    """Draw a point for each place from a bounded law, independently.

    *Guarantee.* Replacing one row moves one number, so the release is pure epsilon-DP with the
    booked epsilon, for every input.
    """
    count, points = len(places), np.empty(len(places), dtype="<i8")
    parts = list(chunks(count, CHUNK_ROWS))
    pieces = ((places[part], noise, key, part, count) for part in parts)
    drawn = (engine or LocalEngine()).each(drawn_points, pieces)
    for part, here in zip(parts, drawn, strict=True):
        points[part] = here
    return points


def drawn_points(
    places: NDArray[np.int64], noise: BoundedNoise, key: bytes, part: slice, count: int
) -> NDArray[np.int64]:
    """The points of one chunk of `count`: what a worker of an engine draws."""
    # The high words of all samples, then the low ones, as the ladder reads them.
    high, low = (
        stream_words(key, part.stop - part.start, first=half * count + part.start)
        for half in (0, 1)
    )
    return noise.draw(places, high, low)


def _noised(
    lattice: NDArray[np.int64], plan: NoisePlan, key: bytes, engine: Engine | None
) -> NDArray[np.int64]:
    if not plan.symmetric:
        ladder(plan.ratio).add_to(lattice, key, engine)
        return lattice
    columns = (math.isqrt(8 * lattice.size + 1) - 1) // 2
    lattice[:columns] += ladder(plan.ratio).sample(columns, key)
    off = stream_key(key, b"off the diagonal")
    lattice[columns:] += ladder(plan.off_diagonal_ratio).sample(lattice.size - columns, off)
    return lattice


def _on_lattice(values: FloatVector, plan: NoisePlan, allocate: Allocate) -> NDArray[np.int64]:
    """The nearest integers, chunk by chunk: a batch may hold all rows."""
    grid, steps = 2.0**plan.exponent, 2.0**-plan.exponent  # both exact
    bound = min(plan.value_bound, LARGEST_INTEGER / 2 * grid)
    lattice = allocate((len(values),), "<i8")
    for part in chunks(len(values)):
        # Where the bound holds, clipping changes nothing; where code is wrong, it keeps the price.
        here = values[part]
        inside = np.clip(np.where(np.isnan(here), 0.0, here), -bound, bound)
        lattice[part] = np.rint(inside * steps)
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
        mechanism=plan.mechanism,
        mu2_units=mu2,
        tau_units=tau,
        pure_units=0 if plan.bounded is None else plan.bounded.pure_units,
        disclosed_rows=plan.disclosed_rows,
    )


def _sealed(values: FloatVector, key: bytes) -> NDArray[np.int64]:
    """Encrypt numbers with a stream that their keyed tag chooses; the tag goes in front.

    If a disk is rolled back and other numbers get the same release id, they use another stream.
    """
    words = np.ascontiguousarray(values, dtype="<f8").view("<u8")
    tag = _seal_tag(words, key)
    stream = stream_words(stream_key(key, tag), len(words))
    return np.concatenate([np.frombuffer(tag, dtype="<i8"), (words ^ stream).view("<i8")])


def _seal_tag(words: NDArray[np.uint64], key: bytes) -> bytes:
    return hashlib.blake2b(words.data, key=key, person=b"hdpvfl seal 2", digest_size=16).digest()


def unsealed(release: Release, key: bytes) -> Release:
    """Decrypt a sealed release; PeerError if it does not hold finite numbers."""
    return Release(**{**dict(release), "tensor": Tensor.of(unsealed_values(release, key))})


def unsealed_values(release: Release, key: bytes) -> FloatVector:
    """The numbers of a sealed release; PeerError if they are not finite."""
    sealed = release.tensor.array()
    if sealed.dtype != np.dtype("<i8") or sealed.ndim != 1 or len(sealed) < SEAL_WORDS:
        raise PeerError(f"{release.release_id}: exact scores travel sealed")
    tag, hidden = sealed[:SEAL_WORDS].tobytes(), sealed[SEAL_WORDS:].view("<u8")
    words = hidden ^ stream_words(stream_key(key, tag), len(hidden))
    values = words.view("<f8")
    if _seal_tag(words, key) != tag or not np.isfinite(values).all():
        raise PeerError(f"{release.release_id}: sealed for somebody else")
    return values


def stored_release(stored: bytes) -> Release:
    """Parse a release stored as JSON; ValueError if these bytes are not a release."""
    return Release.model_validate_json(stored)


def released_values(release: Release, allocate: Allocate = np.empty) -> NDArray[np.float64]:
    """The numbers of a release, before its scale is applied."""
    values = release.tensor.array()
    scaled: NDArray[np.float64] = allocate(values.shape, np.float64)
    for part in chunks(len(values)):
        np.multiply(values[part], grid_of(release), out=scaled[part], dtype=np.float64)
    return scaled


def grid_of(release: Release) -> float:
    """What the entries of a release's tensor are multiples of; 1 if they are exact numbers."""
    return 1.0 if release.tensor.dtype == "<f8" else 2.0**release.exponent
