"""The door to entity resolution. Owns the making of sessions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpvfl_mq.arrays.chunked import Room
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.psi.active import ActiveSession
from hdpvfl_mq.psi.curve import BlockMap
from hdpvfl_mq.psi.passive import PassiveSession
from hdpvfl_mq.psi.session import OwnSet, Session, Terms


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
    if me not in terms.parties:
        raise SettingsError(f"{me} is no party of this entity resolution")
    if len(secret) != 32 or len(terms.session_id) != 32:
        raise SettingsError("the secret and the session id must have 32 bytes each")
    own = OwnSet(ids, room, mapper)
    if me == terms.active:
        return ActiveSession(terms, own, secret)
    return PassiveSession(terms, me, own, secret)
