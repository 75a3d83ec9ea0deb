"""Gaussian noise on the integers, of any width, from a keyed stream.

It owns the address of the noise and the ladder that makes a wide Gaussian from small tables; it
knows no value that the noise is added to, no budget and no release.

*Guarantee.* A sample of `ladder(ratio)` is a Gaussian of variance ratio^2 (or more, by one part in
2^43) rounded to the nearest integer, up to the total variation that the ladder states. Up to ratio
512 it comes from one table. A wider Gaussian is a sum,

    round(N(0, s_0^2)) + 64 D_1 + 64^2 D_2 + ... ,    D_j discrete Gaussians.

Adding integers commutes with rounding, so it is enough that N(0, v^2) + h D is N(0, v^2 + h^2 s^2):
its density is that Gaussian times sum_j exp(-(h j - c)^2 / (2 w^2)), w^-2 = v^-2 + (h s)^-2, and by
Poisson summation this sum varies by a factor of at most 1 +- e, e < 2.5 exp(-2 pi^2 w^2 / h^2).
With v >= 2.5 h and s >= 7 that is below 2^-155, far less than the rounding of the tables.
The randomness comes from a cipher, so the guarantee is computational.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import CHUNK_ROWS, chunks
from hdpvfl_mq.engine.port import Engine
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.table import AliasTable, discrete_gaussian, rounded_gaussian
from schemas.privacy import TAU_UNIT_BITS

WIDEST_TABLE = 512.0
NARROWEST_RATIO, WIDEST_RATIO = 0.25, 2.0**44
SEED_BYTES = 32
# A ratio keeps this many bits, rounded up, so that near-equal plans share their tables.
_RATIO_BITS = 16
_SPACING = 64
_RUNG_STD = 160.0
_STREAM_DOMAIN = b"hdpvfl.noise.1"
_ZERO_WORDS = 2**16
_ZEROS = memoryview(bytes(8 * _ZERO_WORDS))  # enciphered to a stream; not allocated again each time
_COMMIT_DOMAIN = b"hdpvfl.seed.1"


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """The tables whose sum, each times its spacing, is the rounded Gaussian of width `ratio`."""

    ratio: float
    rungs: tuple[tuple[int, AliasTable], ...]
    scaled: tuple[AliasTable, ...]  # each table times its spacing
    tau_units: int

    def sample(self, count: int, key: bytes) -> NDArray[np.int64]:
        """Draw `count` samples from the stream of this key."""
        total = np.zeros(count, dtype=np.int64)
        self.add_to(total, key)
        return total

    def add_to(self, total: NDArray[np.int64], key: bytes, engine: Engine | None = None) -> None:
        """Add a sample from the stream of this key to every number.

        For every rung, the stream holds the high words of all samples and then the low words; it
        is read a chunk of samples at a time, so an engine may draw chunks apart.
        """
        count = len(total)
        if engine is None or count <= CHUNK_ROWS:
            for part in chunks(count):
                self.add_part(total[part], key, part, count)
            return
        parts = list(chunks(count, CHUNK_ROWS))
        pieces = ((self.ratio, key, part, count) for part in parts)
        for part, drawn in zip(parts, engine.each(drawn_part, pieces), strict=True):
            total[part] += drawn

    def add_part(self, total: NDArray[np.int64], key: bytes, part: slice, count: int) -> None:
        """Add the samples of one chunk of `count` numbers."""
        words = self._words(key, part, count)
        for table, (high, low) in zip(self.scaled, words, strict=True):
            total += table.draw(high, low)

    def _words(
        self, key: bytes, part: slice, count: int
    ) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        """High and low words of one chunk, rung by rung; a single chunk is read in one pass.

        The words of a rung overwrite the last ones, whose memory is still in the processor's cache.
        """
        size = part.stop - part.start
        if size == count:
            stream, words = _cipher(key, 0), np.empty(2 * count + 2, dtype="<u8")
            for _ in self.rungs:
                stream.update_into(_zeros(2 * count), words.data.cast("B"))
                yield words[:count], words[count : 2 * count]
            return
        for rung in range(len(self.rungs)):
            first = 2 * rung * count + part.start
            high = stream_words(key, size, first=first)
            yield high, stream_words(key, size, first=first + count)


def drawn_part(ratio: float, key: bytes, part: slice, count: int) -> NDArray[np.int64]:
    """The samples of one chunk of `count`: what a worker of an engine draws."""
    drawn = np.zeros(part.stop - part.start, dtype=np.int64)
    ladder(ratio).add_part(drawn, key, part, count)
    return drawn


def stream_words(key: bytes, count: int, *, first: int = 0) -> NDArray[np.uint64]:
    """`count` 64-bit words of a key's stream, from word `first` on."""
    block, skipped = divmod(first, 2)
    size = skipped + count
    words = np.empty(size + 2, dtype="<u8")  # the cipher asks for room for one more block
    _cipher(key, block).update_into(_zeros(size), words.data.cast("B"))
    return words[skipped:size]


def _cipher(key: bytes, block: int) -> Any:
    """A key's stream from one of its blocks on."""
    return Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()


def _zeros(words: int) -> memoryview | bytes:
    return _ZEROS[: 8 * words] if words <= _ZERO_WORDS else bytes(8 * words)


def round_ratio(ratio: float) -> float:
    """Round a ratio up to a few bits; the result is an exact binary fraction."""
    mantissa, exponent = math.frexp(ratio)
    return math.ldexp(math.ceil(math.ldexp(mantissa, _RATIO_BITS)), exponent - _RATIO_BITS)


@lru_cache(maxsize=128)
def ladder(ratio: float) -> Ladder:
    """Build the sampler of N(0, ratio^2) rounded to the integers; `ratio` is noise_std / grid.

    *Bound.* `tau_units` is the total variation of one sample to that law, in units of 2^-140,
    rounded up.
    """
    if not NARROWEST_RATIO <= ratio <= WIDEST_RATIO:
        raise SettingsError(f"noise of {ratio:g} grid steps is out of range; change the grid")
    coarse = 0
    while ratio > WIDEST_TABLE * _SPACING**coarse:
        coarse += 1
    if coarse == 0:
        tables = [rounded_gaussian(ratio)]
    else:
        rungs = [discrete_gaussian(_RUNG_STD) for _ in range(coarse - 1)]
        top = math.sqrt(ratio**2 - _variance(coarse)) / _SPACING**coarse
        # Rounded up by far more than the float error of the line above.
        tables = [rounded_gaussian(_RUNG_STD), *rungs, discrete_gaussian(top * (1 + 2.0**-45))]
    with gmpy2.context(precision=256):
        distance = sum((table.distance for table in tables), gmpy2.mpfr(0))
        for j in range(1, coarse + 1):
            total = _variance(j + 1) if j < coarse else ratio**2
            distance += _ripple(_variance(j), total, _SPACING**j)
        tau_units = int(gmpy2.ceil(distance * gmpy2.exp2(TAU_UNIT_BITS)))
    steps = tuple((_SPACING**j, table) for j, table in enumerate(tables))
    return Ladder(ratio, steps, tuple(t.times(spacing) for spacing, t in steps), tau_units)


def _variance(rungs: int) -> float:
    """Variance of the lowest rungs together."""
    return float(sum((_RUNG_STD * _SPACING**j) ** 2 for j in range(rungs)))


def _ripple(below: float, total: float, spacing: int) -> Any:
    """Bound the total variation that one more rung adds: e / (1 - e), see the module docstring."""
    narrow = below * (total - below) / total * (1 - 2.0**-40)
    ripple = 2.5 * gmpy2.exp(-2 * gmpy2.const_pi() ** 2 * narrow / spacing**2)
    return ripple / (1 - ripple)


def stream_key(seed: bytes, *address: bytes) -> bytes:
    """The key of one release's noise: a keyed hash of its whole address.

    *Guarantee.* Fields are length-prefixed, so equal addresses have equal fields.
    """
    if len(seed) != SEED_BYTES:
        raise SettingsError("a noise seed has 32 bytes")
    prf = hashlib.blake2b(key=seed, person=_STREAM_DOMAIN, digest_size=32)
    for field in address:
        prf.update(len(field).to_bytes(8, "little") + field)
    return prf.digest()


def commitment(seed: bytes, salt: bytes) -> bytes:
    """Commit to a seed without showing it; the salt stays secret too."""
    if len(seed) != SEED_BYTES or not 16 <= len(salt) <= 64:
        raise SettingsError("a commitment needs a seed of 32 bytes and a salt of 16 to 64")
    return hashlib.blake2b(seed, key=salt, person=_COMMIT_DOMAIN, digest_size=32).digest()
