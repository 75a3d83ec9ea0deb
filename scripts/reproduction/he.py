"""HE-VFL: the encrypted baseline after Hardy et al. (2017), with three interchangeable ciphers.

It owns the protocol: logistic loss by its Taylor polynomial log 2 - y theta / 2 + theta^2 / 8, an
arbiter with the secret key, and masks on the values that the arbiter decrypts. It is not part of
the product and shares only the row scaling with it. Up to rounding, the result does not depend on
the cipher: `PlainNumbers` runs the same protocol without encryption to measure accuracy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.glm.block import scale_rows
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.quality import quality
from scripts.reproduction.data import PARTIES, Split
from scripts.reproduction.methods import LOSS

Vector = NDArray[np.float64]
SMOOTHNESS = 0.25  # of the Taylor polynomial
PAILLIER_BITS = 2048
FIXED_POINT = 2.0**-32
CKKS_SLOTS = 4096


class Numbers(Protocol):
    """A vector under additively homomorphic encryption."""

    name: str

    def encrypt(self, values: Vector) -> Any: ...

    def scaled_plus(self, c: Any, scale: float, plain: Vector) -> Any:
        """Scale times the encrypted vector, plus a plain one."""

    def columns(self, X: NDArray[np.float64], c: Any) -> Any:
        """X' c, still encrypted."""

    def masked(self, c: Any, mask: Vector) -> Any:
        """The result of `columns` plus a mask, ready to send."""

    def decrypt(self, c: Any) -> Vector: ...

    def size(self, c: Any) -> int:
        """Bytes on the wire."""


class PlainNumbers:
    """Plain numbers without encryption, to compute what the encrypted protocol computes."""

    name = "plain"

    def encrypt(self, values: Vector) -> Any:
        return values

    def scaled_plus(self, c: Any, scale: float, plain: Vector) -> Any:
        return scale * c + plain

    def columns(self, X: NDArray[np.float64], c: Any) -> Any:
        return c @ X

    def masked(self, c: Any, mask: Vector) -> Any:
        return c + mask

    def decrypt(self, c: Any) -> Vector:
        return np.asarray(c)

    def size(self, c: Any) -> int:
        return 8 * len(c)


class Paillier:
    """One ciphertext per number, in fixed point so that exponents always agree."""

    name = f"Paillier {PAILLIER_BITS}"

    def __init__(self, bits: int = PAILLIER_BITS) -> None:
        from phe import EncodedNumber, generate_paillier_keypair  # noqa: PLC0415 - optional

        self._public, self._secret = generate_paillier_keypair(n_length=bits)
        self._encoding, self._bits = EncodedNumber, bits

    def _encoded(self, value: float) -> Any:
        return self._encoding.encode(self._public, float(value), precision=FIXED_POINT)

    def encrypt(self, values: Vector) -> Any:
        return [self._public.encrypt(self._encoded(value)) for value in values]

    def scaled_plus(self, c: Any, scale: float, plain: Vector) -> Any:
        factor = self._encoded(scale)
        deep = 2 * factor.exponent
        encode = self._encoding.encode
        return [
            a * factor + encode(self._public, float(b), max_exponent=deep)
            for a, b in zip(c, plain, strict=True)
        ]

    def columns(self, X: NDArray[np.float64], c: Any) -> Any:
        totals = []
        for j in range(X.shape[1]):
            first, *more = np.flatnonzero(X[:, j])
            total = c[first] * self._encoded(X[first, j])
            for i in more:
                total = total + c[i] * self._encoded(X[i, j])
            totals.append(total)
        return totals

    def masked(self, c: Any, mask: Vector) -> Any:
        # A fresh ciphertext of the mask also hides how the sum was computed.
        return [a + b for a, b in zip(c, self.encrypt(mask), strict=True)]

    def decrypt(self, c: Any) -> Vector:
        return np.array([self._secret.decrypt(number) for number in c])

    def size(self, c: Any) -> int:
        return len(c) * 2 * self._bits // 8


class Ckks:
    """A whole batch in one ciphertext of the CKKS scheme."""

    name = "CKKS 8192"

    def __init__(self) -> None:
        import tenseal  # noqa: PLC0415 - optional

        self._vector = tenseal.ckks_vector
        self._context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, 2 * CKKS_SLOTS, coeff_mod_bit_sizes=[60, 40, 40, 60]
        )
        self._context.global_scale = 2.0**40
        self._context.generate_galois_keys()

    def encrypt(self, values: Vector) -> Any:
        return self._vector(self._context, values.tolist())

    def scaled_plus(self, c: Any, scale: float, plain: Vector) -> Any:
        return c * scale + plain.tolist()

    def columns(self, X: NDArray[np.float64], c: Any) -> Any:
        return [c.dot(X[:, j].tolist()) for j in range(X.shape[1])]

    def masked(self, c: Any, mask: Vector) -> Any:
        return [a.add([b]) for a, b in zip(c, mask.tolist(), strict=True)]

    def decrypt(self, c: Any) -> Vector:
        return np.array([number.decrypt()[0] for number in c])

    def size(self, c: Any) -> int:
        return sum(len(v.serialize()) for v in (c if isinstance(c, list) else [c]))


@dataclass(frozen=True)
class Settings:
    """Plain gradient descent with an l2 penalty."""

    epochs: int
    batch_rows: int
    step_size: float
    strength: float


def paper_settings() -> Settings:
    """Epochs, batch and penalty of the paper, with the largest step that is sure to descend."""
    return Settings(10, 3200, 1.9 / (2 * SMOOTHNESS), 1e-3)


def to_the_end(parties: int) -> Settings:
    """Settings that train as long as the federation without privacy."""
    return Settings(200, 10**9, 1.9 / (parties * SMOOTHNESS), 1e-4)


@dataclass
class Cost:
    """Computing seconds and bytes for each step of the protocol."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    bytes: int = 0

    def timed(self, step: str, make: Any) -> Any:
        """Call a function and add its time to a step."""
        began = time.process_time()
        result = make()
        self.seconds[step] += time.process_time() - began
        return result


def descend(
    blocks: tuple[NDArray[np.float64], NDArray[np.float64]],
    y: Vector,
    settings: Settings,
    numbers: Numbers,
    cost: Cost | None = None,
) -> tuple[Vector, Vector]:
    """Train both parties' weights; y is -1 or +1, the first block's last column the intercept."""
    cost, dice = cost or Cost(), np.random.default_rng(0)
    weights = [np.zeros(X.shape[1]) for X in blocks]
    free = np.ones(blocks[0].shape[1])
    free[-1] = 0.0
    penalised = (free, np.ones(blocks[1].shape[1]))
    count = -(-len(y) // min(settings.batch_rows, len(y)))
    for _ in range(settings.epochs):
        for rows in np.array_split(np.arange(len(y)), count):
            parts = [X[rows] for X in blocks]
            # 1. The passive party sends its encrypted scores.
            u = parts[1] @ weights[1]
            sealed = cost.timed("encrypt", lambda u=u: numbers.encrypt(u))
            # 2. The active party makes the encrypted residual theta / 4 - y / 2 and sends it back.
            own = SMOOTHNESS * (parts[0] @ weights[0]) - y[rows] / 2.0
            residual = cost.timed(
                "residual", lambda c=sealed, own=own: numbers.scaled_plus(c, SMOOTHNESS, own)
            )
            cost.bytes += numbers.size(sealed) + numbers.size(residual)
            for side, X in enumerate(parts):
                # 3. Each party masks its encrypted gradient, and the arbiter decrypts it.
                mask = dice.normal(size=X.shape[1])
                sums = cost.timed("gradient", lambda X=X, c=residual: numbers.columns(X, c))
                masked = cost.timed("mask", lambda c=sums, m=mask: numbers.masked(c, m))
                cost.bytes += numbers.size(masked)
                opened = cost.timed("decrypt", lambda c=masked: numbers.decrypt(c))
                w = weights[side]
                gradient = (opened - mask) / len(rows) + settings.strength * penalised[side] * w
                weights[side] = w - settings.step_size * gradient
    return weights[0], weights[1]


def matrices(
    X: dict[str, NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Row-scaled blocks with the active party's intercept, as the product makes them."""
    active, passive = (scale_rows(X[party]) for party in PARTIES)
    return np.hstack([active, np.ones((len(active), 1))]) / np.sqrt(2.0), passive


def accuracy_of(split: Split, settings: Settings, numbers: Numbers) -> dict[str, float]:
    """Quality on the test rows."""
    train = matrices({p: np.asarray(d.X, dtype=np.float64) for p, d in split.train.items()})
    weights = descend(train, 2.0 * split.y_train - 1.0, settings, numbers)
    test = matrices(dict(split.test))
    theta = test[0] @ weights[0] + test[1] @ weights[1]
    return quality(family(LOSS), theta, split.y_test)
