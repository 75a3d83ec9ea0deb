"""Curve25519 by u-coordinate.

It owns hashing to the curve, scalars and point checks; it knows no protocol. Ids are hashed to
points of the curve itself, not of its twist: hashing straight to u would show one bit of every id.
X25519 forces scalars into a clamped form, so a blinding scalar is drawn until its inverse also has
that form; then a blinded point can be unblinded with the same fast function.
"""

from __future__ import annotations

from hashlib import blake2b

import gmpy2
import numpy as np
from nacl.bindings import crypto_scalarmult

from hdpvfl_mq.psi.stream import derive

POINT_BYTES = 32
FIELD = gmpy2.mpz(2**255 - 19)
ORDER = 2**252 + 27742317777372353535851937790883648493
_A = 486662
_SMALL_ORDER = frozenset(  # u-coordinates on the curve whose order divides the cofactor 8
    (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
)


def _on_curve(u: gmpy2.mpz) -> bool:
    return bool(gmpy2.jacobi(u * (u * (u + _A) + 1) % FIELD, FIELD) == 1)


def hash_to_curve(elements: bytes) -> bytes:
    """A point for every 16-byte element, trying hashes until one is a u-coordinate of the curve."""
    points = []
    for start in range(0, len(elements), 16):
        element = elements[start : start + 16]
        for attempt in range(256):  # each attempt fails with probability 1/2
            hashed = blake2b(
                element, digest_size=32, person=b"hdpvfl to curve", salt=bytes([attempt])
            )
            u = gmpy2.mpz(int.from_bytes(hashed.digest(), "little") & (2**255 - 1))
            if u < FIELD and _on_curve(u):
                points.append(int(u).to_bytes(POINT_BYTES, "little"))
                break
    return b"".join(points)


def are_points(points: bytes) -> bool:
    """Whether all are canonical u-coordinates of points on the curve of large order."""
    for start in range(0, len(points), POINT_BYTES):
        u = gmpy2.mpz(int.from_bytes(points[start : start + POINT_BYTES], "little"))
        if u >= FIELD or u in _SMALL_ORDER or not _on_curve(u):
            return False
    return True


def _clamped(scalar: int) -> int:
    return (scalar & (2**254 - 8)) | 2**254


def secret_scalar(key: bytes) -> bytes:
    """A scalar whose inverse is never needed."""
    return _clamped(int.from_bytes(derive(key, "scalar"), "little")).to_bytes(32, "little")


def blinding_scalar(key: bytes) -> tuple[bytes, bytes]:
    """A scalar and its inverse on points of prime order, both in X25519's clamped form."""
    attempt = 0
    while True:  # about two attempts
        scalar = _clamped(int.from_bytes(derive(key, "blinding", attempt), "little"))
        attempt += 1
        inverse = pow(scalar, -1, ORDER)
        inverse += -(-(2**254 - inverse) // ORDER) * ORDER  # smallest representative >= 2^254
        while inverse < 2**255:
            if inverse % 8 == 0:
                return scalar.to_bytes(32, "little"), inverse.to_bytes(32, "little")
            inverse += ORDER


def multiply(scalar: bytes, points: bytes) -> bytes:
    """Every point times the scalar, in the same order."""
    return b"".join([crypto_scalarmult(scalar, point) for point in in_blocks(points, POINT_BYTES)])


def in_blocks(data: bytes, size: int) -> list[bytes]:
    """Consecutive slices of at most `size` bytes."""
    if len(data) < size:
        return [data] if data else []
    count, left = divmod(len(data), size)
    blocks: list[bytes] = np.frombuffer(data, f"V{size}", count=count).tolist()
    return [*blocks, data[-left:]] if left else blocks
