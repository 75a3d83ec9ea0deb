"""The door to entity resolution. Owns the choice of a method and the making of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hdpvfl_mq.arrays.chunked import Room
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.psi.active import ActiveSession
from hdpvfl_mq.psi.curve import BlockMap
from hdpvfl_mq.psi.dh_oprf import DhAnswerer, DhAsker
from hdpvfl_mq.psi.oprf import Answerer, Asker
from hdpvfl_mq.psi.ot_oprf import OtAnswerer, OtAsker
from hdpvfl_mq.psi.passive import PassiveSession
from hdpvfl_mq.psi.session import Method, OwnSet, Session, Terms
from hdpvfl_mq.psi.stream import derive

LARGE_SET = 2_000  # from here on 480 base transfers cost less than multiplying every point


def choose_method(sizes: Iterable[int]) -> Method:
    """`oprf` for large sets; `ecdh` sends fewer bytes and is quicker for small ones."""
    return "oprf" if max(sizes, default=0) >= LARGE_SET else "ecdh"


def open_session(
    terms: Terms,
    me: str,
    ids: Sequence[bytes],
    *,
    secret: bytes,
    mapper: BlockMap = map,
    room: Room = np.empty,
) -> Session:
    """This party's session over distinct normalised ids.

    `secret` is 32 bytes that no other party knows and no other run uses; `mapper` may spread blocks
    of bytes over a pool (it takes picklable functions of bytes and keeps their order); `room` gives
    the arrays that have an entry for each id.
    """
    if me not in (terms.active, *terms.passives):
        raise SettingsError(f"{me} is no party of this entity resolution")
    if len(secret) != 32 or len(terms.public_seed) != 32:
        raise SettingsError("the secret and the public seed must have 32 bytes each")
    key, own = derive(secret, "oprf", terms.public_seed, me), OwnSet(ids, room)
    if me == terms.active:
        return ActiveSession(terms, own, secret, _asker(terms, key, mapper))
    return PassiveSession(terms, me, own, secret, _answerer(terms, me, key, mapper))


def _asker(terms: Terms, key: bytes, mapper: BlockMap) -> Asker:
    if terms.method == "ecdh":
        return DhAsker(key, mapper)
    return OtAsker(key, terms.public_seed, mapper)


def _answerer(terms: Terms, me: str, key: bytes, mapper: BlockMap) -> Answerer:
    if terms.method == "ecdh":
        return DhAnswerer(key, terms.active, mapper)
    return OtAnswerer(key, terms.public_seed, me, terms.active, mapper)
