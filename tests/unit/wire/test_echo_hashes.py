"""The hashes that parties echo: every order and residual changes them, in its place."""

from __future__ import annotations

import hashlib

from hdpvfl_mq.wire.echoes import orders_start, residuals_start, with_order, with_residual
from schemas.messages import Resume
from tests.samples import sample


def test_orders_are_hashed_in_their_order():
    start = orders_start(bytes(32))
    orders = [Resume(round=number, absent=()) for number in (1, 2)]
    one = with_order(with_order(start, orders[0]), orders[1])
    other = with_order(with_order(start, orders[1]), orders[0])
    assert len({start, one, other, orders_start(b"\x01" * 32)}) == 4


def test_residuals_are_hashed_by_name_and_payload():
    release = sample("residual").release
    named = release.release_id.encode() + b"\x00" + hashlib.sha256(release.tensor.data).digest()
    start = residuals_start(b"key")
    assert with_residual(start, release) == hashlib.sha256(start + named).digest()
