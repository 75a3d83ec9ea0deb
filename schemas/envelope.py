"""The envelope of every message: who sends what to whom, and where it stands in their journals.

It owns the header and its limits; it knows no body. Frames on the wire: [header, signature, body,
array...]. The signature covers every other frame, so a residual that the broker sends to all
parties is the same bytes for each. In place of a large array stand two frames, the digests of its
parts and their sizes (hdpvfl_mq/wire/parts.py).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Count, Digest, Strict
from schemas.ids import MAX_PASSIVES, Epoch, PartyId, RunId, Version

PROTOCOL_VERSION = 2  # the newest that this program speaks; docs/protocol.md says what differs
MAX_HEADER_BYTES = 64 * 2**10
MAX_BODY_BYTES = 64 * 2**10
MAX_ARRAY_BYTES = 16 * 2**20  # a larger one travels in parts
MAX_BLOCK_BYTES = 8 * 2**20  # a block of entity resolution, which sends 4 MiB at a time
MAX_PART_BYTES = 4 * 2**20  # a part of a large array
MAX_PARTS = 2**18
SIGNATURE_BYTES = 64
MIN_FRAMES = 3
MAX_FRAMES = 5
IN_PARTS_FRAMES = 5  # header, signature, body, digests of the parts, sizes of the parts
NO_PARENT = bytes(32)


class Delivery(Strict):
    """One receiver: the envelope's place in the stream to it, and what the sender has received from
    it.

    `sequence` counts from 1 on the ordered pair (sender, party); 0 marks a bare acknowledgement.
    `ack` is the last sequence from `party` that the sender has durably recorded and `seen` the
    digest of that envelope: an acknowledgement co-signs the journal root that envelope stated.
    """

    party: PartyId
    sequence: Count
    ack: Count
    seen: Digest


class Header(Strict):
    """What the broker may read."""

    version: Version
    run: RunId
    sender: PartyId
    epoch: Epoch
    kind: Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")]
    to: Annotated[tuple[Delivery, ...], Field(min_length=1, max_length=MAX_PASSIVES + 2)]
    parent: Digest  # digest of the envelope that caused this one, or NO_PARENT
    # The sender's journal before the step that sent this: last digest, record count, RFC 9162 root.
    head: Digest
    size: Count
    root: Digest
