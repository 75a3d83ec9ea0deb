"""The hashes that parties echo: of the coordinator's orders, and of the residuals.

It owns what is hashed. parties/echo.py makes and compares them live, the audit checks them later.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel

from hdpvfl_mq.wire.codec import model_digest
from schemas.privacy import Release

_ORDERS, _RESIDUALS = b"hdpvfl-mq orders 1\x00", b"hdpvfl-mq residuals 1\x00"


def orders_start(terms: bytes) -> bytes:
    """Where the hash of the orders starts: the digest of the terms that all parties signed."""
    return hashlib.sha256(_ORDERS + terms).digest()


def with_order(orders: bytes, order: BaseModel) -> bytes:
    """The hash of the orders with one more."""
    return hashlib.sha256(orders + model_digest(order)).digest()


def residuals_start(shared_key: bytes) -> bytes:
    """Where the hash of the residuals starts: known to all parties, not to the coordinator."""
    return hashlib.sha256(_RESIDUALS + shared_key).digest()


def with_residual(residuals: bytes, release: Release) -> bytes:
    """The hash of the residuals with one more."""
    named = release.release_id.encode() + b"\x00" + release.tensor.digest
    return hashlib.sha256(residuals + named).digest()
