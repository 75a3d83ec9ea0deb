"""A process's state at one record of its journal, so that a restart need not replay from the first.

It owns the shape of that state; it knows no file and no role's moves. A snapshot is a shortcut,
never evidence: one that does not fit the journal, the data or the program is ignored. A party's
snapshot holds its weights, so it is stored with the party's secrets and is not part of a run's
evidence.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Digest, Strict
from schemas.ids import MAX_PASSIVES, Epoch, PartyId
from schemas.privacy import LedgerHead
from schemas.records import Arm
from schemas.tensor import Tensor

_PEERS = MAX_PASSIVES + 2
DIGESTS_MAX = 4096


class StreamMark(Strict):
    """Positions of the two streams with one peer."""

    party: PartyId
    received: Count
    epoch: Count  # of the last envelope received; 0: none
    seen: Digest
    sent: Count
    acknowledged: Count
    confirmed: Count  # the last envelope to this peer that its recorded envelopes acknowledge
    # Digests of the envelope `confirmed` and of all later ones.
    digests: Annotated[tuple[Digest, ...], Field(max_length=DIGESTS_MAX)]


class NodeSnapshot(Strict):
    """A node after `steps` records, the last of which has digest `head`."""

    format: Literal[1] = 1
    version: Annotated[
        str, Field(max_length=64)
    ]  # of the program; other versions replay from the first record
    party: PartyId
    steps: Annotated[int, Field(ge=1)]
    head: Digest
    peaks: Annotated[tuple[Digest, ...], Field(max_length=64)]
    epoch: Epoch
    streams: Annotated[tuple[StreamMark, ...], Field(max_length=_PEERS)]
    unacknowledged: Tensor  # indices of the records with envelopes that peers have not acknowledged
    greeting: Annotated[int, Field(ge=-1)]  # index of the record with the hello; -1: none
    timers: Annotated[tuple[Arm, ...], Field(max_length=64)]
    is_ledger_due: bool
    # Ledger and account of scored people then; an older copy lacks what this run has released.
    ledger: Annotated[tuple[LedgerHead, ...], Field(max_length=2)]
    state: Annotated[bytes, Field(repr=False)]  # the role's state, packed
