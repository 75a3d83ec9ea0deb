"""Curve25519: blinding can be undone, hashed points are on the curve, wrong points are noticed."""

from __future__ import annotations

import pytest

from hdpvfl_mq.psi.curve import (
    FIELD,
    are_points,
    blinding_scalar,
    hash_to_curve,
    multiply,
    secret_scalar,
)
from hdpvfl_mq.psi.stream import derive, expand

ELEMENTS = expand(bytes(32), 16 * 40)


@pytest.mark.parametrize("number", range(8))
def test_unblinding_undoes_blinding(number: int) -> None:
    points = hash_to_curve(ELEMENTS)
    blinding, inverse = blinding_scalar(derive(bytes(32), number))
    key = secret_scalar(derive(bytes(32), "key", number))
    blinded = multiply(blinding, points)
    assert blinded != points
    assert multiply(inverse, multiply(key, blinded)) == multiply(key, points)


def test_hashing_is_deterministic_distinct_and_on_the_curve() -> None:
    points = hash_to_curve(ELEMENTS)
    assert hash_to_curve(ELEMENTS) == points
    assert len({points[i : i + 32] for i in range(0, len(points), 32)}) == 40
    assert are_points(points)


def _twist_point() -> int:
    return next(u for u in range(2, 100) if not are_points(u.to_bytes(32, "little")))


@pytest.mark.parametrize(
    "u",
    [
        0,
        1,
        int(FIELD) - 1,
        int(FIELD),
        int(FIELD) + 9,
        2**256 - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _twist_point(),
    ],
)
def test_points_of_small_order_twist_or_unreduced_are_refused(u: int) -> None:
    assert are_points((9).to_bytes(32, "little"))
    assert not are_points((9).to_bytes(32, "little") + u.to_bytes(32, "little"))
