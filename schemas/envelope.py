"""The envelope of every message: who sends what to whom, and where it stands in their journals.

It owns the header and its limits; it never knows a body. Frames on the wire:
[header, signature, body, array...]. The signature covers every other frame, so one residual fanned
out by the broker is the same bytes for everybody.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Closed, Count, Digest
from schemas.ids import MAX_PASSIVES, Epoch, PartyId, RunId

PROTOCOL_VERSION: Literal[1] = 1
MAX_HEADER_BYTES = 64 * 2**10
MAX_BODY_BYTES = 64 * 2**10
MAX_ARRAY_BYTES = 64 * 2**20
MAX_BLOCK_BYTES = 8 * 2**20  # of entity resolution, which sends 4 MiB at a time
SIGNATURE_BYTES = 64
MIN_FRAMES = 3
MAX_FRAMES = 4
NO_PARENT = bytes(32)


class Delivery(Closed):
    """One receiver: its place in the stream from sender to it, and what the sender has of its own.

    `sequence` counts from 1 on the ordered pair (sender, party); 0 marks a bare acknowledgement.
    `ack` is the last sequence from `party` that the sender has durably recorded and `seen` the
    digest of that envelope: an acknowledgement co-signs the journal root that envelope stated.
    """

    party: PartyId
    sequence: Count
    ack: Count
    seen: Digest


class Header(Closed):
    """What the broker may read."""

    version: Literal[1]
    run: RunId
    sender: PartyId
    epoch: Epoch
    kind: Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")]
    to: Annotated[tuple[Delivery, ...], Field(min_length=1, max_length=MAX_PASSIVES + 2)]
    parent: Digest  # the envelope that caused this one, or NO_PARENT
    # The sender's journal before the step that sent this: last link, records, RFC 9162 root.
    head: Digest
    size: Count
    root: Digest
