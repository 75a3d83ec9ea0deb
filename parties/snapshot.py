"""Converts a party's state to bytes for a snapshot, and back.

It owns when a state may be stored and what it depends on; plan, block of rows, noise and labels are
made again from the data, the secret and the kept alignment. Only a state in training is stored:
before training there is little to replay, or an open session.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.node.frozen import fields_from_plain, to_plain
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import model_digest
from parties.alignment import setup_again
from parties.assets import Assets
from parties.phases import Phase, Training
from parties.rounds import ROUNDS
from parties.rounds.scoring import ScoringRounds
from schemas.config import RunManifest
from schemas.data import DataSettings

_MAX_BYTES, _MAX_ITEMS = 2**31, 2**24


def freeze(own: Assets, state: Phase) -> bytes | None:
    """The state as bytes; None outside training, or if the alignment is not kept.

    None in a prediction, whose one round leaves nothing to replay, and while a query is open.
    """
    if not isinstance(state, Training) or state.session is not None:
        return None
    is_scoring = isinstance(state.rounds, ScoringRounds)
    if state.setup.alignment is None or (own.model is not None and not is_scoring):
        return None
    if isinstance(state.rounds, ScoringRounds) and state.rounds.is_open:
        return None
    return pack(
        {
            "made_of": _made_of(own),
            "alignment": state.setup.alignment.name,
            "manifest": state.manifest.model_dump(),
            "training": to_plain(state),
            "rounds": to_plain(state.rounds),
        }
    )


def thaw(own: Assets, frozen: bytes) -> Training | None:
    """The state from its bytes; None if anything it was made of has changed."""
    try:
        stored = unpack(frozen, max_bytes=_MAX_BYTES, max_items=_MAX_ITEMS)
        if stored["made_of"] != _made_of(own) or own.found is None:
            return None
        return None if stored["alignment"] != own.found.name else _thawed(own, stored)
    except (PeerError, ValidationError, ValueError, KeyError, TypeError):
        return None


def _thawed(own: Assets, stored: Any) -> Training | None:
    assert own.found is not None
    manifest = RunManifest.model_validate(stored["manifest"])
    setup = setup_again(own, manifest, own.found)
    rounds = ROUNDS[type(manifest.method)]
    begun = (rounds.active_start if own.role == "active" else rounds.passive_start)(own, setup)
    begun = replace(begun, **fields_from_plain(type(begun), stored["rounds"]))
    return Training(setup=setup, rounds=begun, **fields_from_plain(Training, stored["training"]))


def _made_of(own: Assets) -> bytes:
    """A digest of everything besides inputs that a state follows from; replay needs it too.

    The data's fingerprint does not cover which class counts as 1 nor the type of the numbers, so
    the data settings, except the file's name, are part of the digest.
    """
    settings = DataSettings(**{**dict(own.data.settings), "file": None})
    parts = (
        commitment(own.secret, own.salt),
        own.data.fingerprint,
        model_digest(settings),
        own.numeric_profile.encode(),
        b"" if own.model is None else own.model.weights.tobytes(),
    )
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
