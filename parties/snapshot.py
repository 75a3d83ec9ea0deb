"""A party's state as bytes for a snapshot, and back.

It owns what of a state must be kept because it follows from nothing else; the rest (plan, block of
rows, noise, labels) is made again from data, secret and the kept alignment. Only a state in the
middle of training is put away: before that there is little to fold, or an open session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.glm.refit import Told
from hdpvfl_mq.privacy.mechanism import released_values
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import model_digest
from parties import alignment
from parties.assets import Assets
from schemas.data import DataSettings
from schemas.ids import PartyId
from schemas.snapshot import MemberMemory, StandIns
from schemas.tensor import Tensor

if TYPE_CHECKING:
    from parties.member import Member

_MAX_BYTES = 2**31
_AS_IT_IS = (
    *("phase", "standing", "manifest", "waiting_for", "align_total", "planned", "round"),
    *("last_released", "transcript", "w_count", "is_done", "reason"),
)


def freeze(party: Member, state: Any) -> bytes | None:
    """The state as bytes; None outside training, or where the alignment is not kept.

    None in a prediction too: its one round leaves nothing to fold.
    """
    own = party.own
    if state.phase != "training" or state.session is not None or state.alignment is None:
        return None
    if own.model is not None:
        return None
    values = {name: getattr(state, name) for name in _AS_IT_IS}
    memory = MemberMemory(
        made_of=_made_of(own),
        alignment=state.alignment.name,
        away_until=dict(state.away_until),
        w=Tensor.of(state.w),
        w_sum=Tensor.of(state.w_sum),
        energies=Tensor.of(np.array(state.energies, dtype=np.float64)),
        witnesses=tuple(sorted(state.witnesses)),
        **values,
        **_of_the_side(state),
    )
    return pack(memory.model_dump())


def thaw(party: Member, frozen: bytes) -> Any | None:
    """The state again; None if anything it was made of is another now."""
    try:
        memory = MemberMemory.model_validate(unpack(frozen, max_bytes=_MAX_BYTES))
    except (PeerError, ValidationError):
        return None
    own = party.own
    if own.found is None or own.found.name != memory.alignment:
        return None
    if memory.made_of != _made_of(own):
        return None
    state = replace(
        party.initial(),
        alignment=own.found,
        away_until=MappingProxyType(memory.away_until),
        w=memory.w.array(),
        w_sum=memory.w_sum.array(),
        energies=tuple(memory.energies.array().tolist()),
        witnesses=frozenset(memory.witnesses),
        **{name: getattr(memory, name) for name in _AS_IT_IS},
    )
    state = alignment.retrained(party, state, own.found)
    return replace(state, **_side_of(state, memory))


def _made_of(own: Assets) -> bytes:
    """A digest of what a state follows from besides its inputs; the journal holds all to it.

    A fingerprint leaves out which class counts as 1 and the type the numbers are kept in, so the
    settings of the data are in it too, but for the name of the file.
    """
    settings = DataSettings(**{**dict(own.data.settings), "file": None})
    parts = (
        commitment(own.secret, own.salt),
        own.data.fingerprint,
        model_digest(settings),
        own.numeric_profile.encode(),
    )
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _of_the_side(state: Any) -> dict[str, Any]:
    """What only an active or only a passive party remembers."""
    if hasattr(state, "shared"):
        return {"shared": state.shared}
    return {
        "shares": {p: release for p, (release, _) in state.shares.items()},
        "stand_ins": _gathered(state.stand_ins),
        "losses": Tensor.of(np.array(state.losses, dtype=np.float64)),
        "told": {p: (Tensor.of(told.b), told.variance) for p, told in state.told.items()},
    }


def _side_of(state: Any, memory: MemberMemory) -> dict[str, Any]:
    if hasattr(state, "shared"):
        return {"shared": memory.shared}
    shares = {p: (release, released_values(release)) for p, release in memory.shares.items()}
    sizes = state.training.plan.schedule.batch_sizes
    assert memory.losses is not None
    return {
        "shares": MappingProxyType(shares),
        "stand_ins": MappingProxyType(_scattered(memory.stand_ins, sizes)),
        "losses": tuple(memory.losses.array().tolist()),
        "told": MappingProxyType(
            {p: Told(b.array(), variance) for p, (b, variance) in memory.told.items()}
        ),
    }


def _gathered(stand_ins: Mapping[tuple[PartyId, int], FloatVector]) -> dict[PartyId, StandIns]:
    batches: dict[PartyId, list[int]] = {}
    for party, batch in sorted(stand_ins):
        batches.setdefault(party, []).append(batch)
    return {
        party: StandIns(
            batches=Tensor.of(np.array(numbers, dtype=np.int64)),
            values=Tensor.of(np.concatenate([stand_ins[party, batch] for batch in numbers])),
        )
        for party, numbers in batches.items()
    }


def _scattered(
    kept: Mapping[PartyId, StandIns], sizes: tuple[int, ...]
) -> dict[tuple[PartyId, int], NDArray[np.float64]]:
    found = {}
    for party, blocks in kept.items():
        values, start = blocks.values.array(), 0
        for batch in blocks.batches.array().tolist():
            found[party, batch] = values[start : start + sizes[batch]]
            start += sizes[batch]
    return found
