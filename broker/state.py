"""What the coordinator remembers, and the same as bytes for a snapshot.

It owns the shape of the coordinator's state; it makes no move.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.canonical import pack, unpack
from schemas.ids import PartyId
from schemas.messages import Aligned, RunAccept
from schemas.snapshot import CoordinatorMemory

_NONE: MappingProxyType[Any, Any] = MappingProxyType({})
_MAX_BYTES = 2**26


@dataclass(frozen=True)
class CoordinatorState:
    """What the coordinator knows; every mapping is replaced, never changed."""

    phase: str = "gathering"
    epochs: MappingProxyType[PartyId, int] = field(default_factory=lambda: _NONE)
    commitments: MappingProxyType[PartyId, bytes] = field(default_factory=lambda: _NONE)
    accepted: MappingProxyType[PartyId, RunAccept] = field(default_factory=lambda: _NONE)
    aligned: MappingProxyType[PartyId, Aligned] = field(default_factory=lambda: _NONE)
    finished_rounds: MappingProxyType[PartyId, int] = field(default_factory=lambda: _NONE)
    finished: frozenset[PartyId] = frozenset()  # parties whose last round is over
    plan_digest: bytes = b""
    rounds: int = 0
    planned: int = 0
    heard: frozenset[PartyId] = frozenset()  # since the last time the watch fired
    asked: bool = False  # a Pause is out, answers are awaited
    absent: frozenset[PartyId] = frozenset()
    outcome: str = ""
    reason: str = ""


def freeze(state: CoordinatorState, manifest_digest: bytes) -> bytes:
    """The state as bytes."""
    values = {each.name: _plain(getattr(state, each.name)) for each in fields(state)}
    return pack(CoordinatorMemory(manifest_digest=manifest_digest, **values).model_dump())


def thaw(frozen: bytes, manifest_digest: bytes) -> CoordinatorState | None:
    """The state again; None if it belongs to another manifest or cannot be read."""
    try:
        memory = CoordinatorMemory.model_validate(unpack(frozen, max_bytes=_MAX_BYTES))
    except (PeerError, ValidationError):
        return None
    if memory.manifest_digest != manifest_digest:
        return None
    names = (each.name for each in fields(CoordinatorState))
    return CoordinatorState(**{name: _rich(getattr(memory, name)) for name in names})


def _plain(value: Any) -> Any:
    if isinstance(value, MappingProxyType):
        return dict(value)
    return tuple(sorted(value)) if isinstance(value, frozenset) else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType(value)
    return frozenset(value) if isinstance(value, tuple) else value
