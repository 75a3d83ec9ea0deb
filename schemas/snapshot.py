"""A process's memory at one record of its journal, so that a restart need not fold from the first.

It owns the shape of that memory; it knows no file and no role's moves. A snapshot is a short cut,
never truth: whatever does not fit the journal, the data or the program is passed over. A party's
own holds its weights, so it stays with the party's secrets and is not part of a run's evidence.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Closed, Count, Digest
from schemas.config import RunManifest
from schemas.ids import MAX_PASSIVES, Epoch, PartyId
from schemas.messages import Aligned, RunAccept
from schemas.privacy import Release
from schemas.records import ArmedEffect, LedgerStanding
from schemas.tensor import Tensor

_PEERS = MAX_PASSIVES + 2
Text = Annotated[str, Field(max_length=2000)]
Parties = Annotated[tuple[PartyId, ...], Field(max_length=_PEERS)]


class StreamMark(Closed):
    """How far one peer's two streams have come."""

    party: PartyId
    received: Count
    seen: Digest
    sent: Count
    acknowledged: Count


class NodeSnapshot(Closed):
    """A node after `steps` records, the last of which has digest `head`."""

    format: Literal[1] = 1
    version: Annotated[str, Field(max_length=64)]  # of the program: another one folds anew
    party: PartyId
    steps: Annotated[int, Field(ge=1)]
    head: Digest
    peaks: Annotated[tuple[Digest, ...], Field(max_length=64)]
    epoch: Epoch
    streams: Annotated[tuple[StreamMark, ...], Field(max_length=_PEERS)]
    unacknowledged: Tensor  # indices of the records that hold what peers have not acknowledged
    greeting: Annotated[int, Field(ge=-1)]  # the index of the record that holds it
    timers: Annotated[tuple[ArmedEffect, ...], Field(max_length=64)]
    is_ledger_due: bool
    state: Annotated[bytes, Field(repr=False)]  # the role's own, packed


class CoordinatorMemory(Closed):
    """The coordinator's state; mappings by party."""

    manifest_digest: Digest
    phase: Text
    epochs: dict[PartyId, Epoch]
    commitments: dict[PartyId, bytes]
    accepted: dict[PartyId, RunAccept]
    aligned: dict[PartyId, Aligned]
    finished_rounds: dict[PartyId, Count]
    finished: Parties
    plan_digest: Annotated[bytes, Field(max_length=32)]
    rounds: Count
    planned: Count
    heard: Parties
    asked: bool
    absent: Parties
    outcome: Text
    reason: Text


class StandIns(Closed):
    """The last released blocks of one party: which batches, and their values end to end."""

    batches: Tensor
    values: Tensor


class MemberMemory(Closed):
    """A party's state while it trains; what follows from data, secret and alignment is not here."""

    made_of: Digest  # of the secret, the rows, how they were prepared, and the numeric profile
    alignment: Digest  # the name of the one in use
    phase: Text
    standing: LedgerStanding
    waiting_for: Parties
    manifest: RunManifest
    align_total: Count
    planned: Count
    round: Count
    last_released: Annotated[int, Field(ge=-1)]
    transcript: Annotated[bytes, Field(max_length=32)]
    away_until: dict[PartyId, Count]
    w: Tensor
    w_sum: Tensor
    w_count: Count
    energies: Tensor
    is_done: bool
    witnesses: Parties
    reason: Text
    # passive
    shared: Annotated[int, Field(ge=-1)] = -1
    # active
    shares: dict[PartyId, Release] = Field(default_factory=dict)
    stand_ins: dict[PartyId, StandIns] = Field(default_factory=dict)
    losses: Tensor | None = None
    told: dict[PartyId, tuple[Tensor, float]] = Field(default_factory=dict)
