"""Base oblivious transfers.

It owns Chou and Orlandi's transfer of random keys; it does not know what the keys are for. The
sender gets two keys for every transfer, the receiver gets the one that its bit selects.

*Guarantee*: the bits are hidden perfectly from a malicious sender, and since it sends one point and
no ciphertext, it cannot make a transfer fail depending on a bit. A malicious receiver that knows
both keys of a transfer solves computational Diffie-Hellman on edwards25519 (the hash is a random
oracle). The hash binds every key to its context (run and pair), its number and both points.
"""

from __future__ import annotations

from collections.abc import Sequence

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)

from hdpvfl_mq.psi.stream import derive, expand


def _scalar(key: bytes, number: int) -> bytes:
    return crypto_core_ed25519_scalar_reduce(expand(derive(key, "base ot", number), 64))


def _transfer_key(shared: bytes, context: bytes, number: int, points: tuple[bytes, bytes]) -> bytes:
    return derive(shared, "base ot key", context, number, *points)


def open_transfers(key: bytes) -> bytes:
    """The sender's point."""
    return crypto_scalarmult_ed25519_base_noclamp(_scalar(key, 0))


def choose(
    key: bytes, context: bytes, opening: bytes, bits: Sequence[int]
) -> tuple[list[bytes], list[bytes]]:
    """The receiver's points, and the key it obtains in every transfer.

    *Domain*: the opening must be a point of prime order, or the multiplication raises RuntimeError.
    """
    points, keys = [], []
    for number, bit in enumerate(bits):
        scalar = _scalar(key, number + 1)
        point = crypto_scalarmult_ed25519_base_noclamp(scalar)
        if bit:
            point = crypto_core_ed25519_add(point, opening)
        points.append(point)
        shared = crypto_scalarmult_ed25519_noclamp(scalar, opening)
        keys.append(_transfer_key(shared, context, number, (opening, point)))
    return points, keys


def sender_keys(
    key: bytes, context: bytes, points: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """The sender's keys for bit 0 and for bit 1 of every transfer.

    *Domain*: points of prime order, or the multiplication raises RuntimeError.
    """
    scalar, opening = _scalar(key, 0), open_transfers(key)
    squared = crypto_scalarmult_ed25519_noclamp(scalar, opening)
    zeros, ones = [], []
    for number, point in enumerate(points):
        shared = crypto_scalarmult_ed25519_noclamp(scalar, point)
        zeros.append(_transfer_key(shared, context, number, (opening, point)))
        other = crypto_core_ed25519_sub(shared, squared)
        ones.append(_transfer_key(other, context, number, (opening, point)))
    return zeros, ones
