"""Hash links between records: each digest covers the record's stored bytes, which name the last.

It owns the link and its check; it is pure and knows no storage. What is hashed is the bytes as
stored, never a re-encoding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from hdpvfl_mq.errors import IntegrityError, PeerError
from hdpvfl_mq.wire.canonical import pack, unpack
from schemas.records import GENESIS, StepRecord

_DOMAIN = b"hdpvfl-mq record 1\x00"
MAX_RECORD_BYTES = 2**31


class DivergenceError(IntegrityError):
    """A recorded step comes out differently when it is folded again."""

    def __init__(self, index: int, recorded: bytes, recomputed: bytes) -> None:
        super().__init__(
            f"step {index} does not come out as recorded: data, secret, code or numeric profile "
            "differ from those of the run; 'hdpvfl replay --diverge' shows the difference"
        )
        self.index, self.recorded, self.recomputed = index, recorded, recomputed


def link(record: bytes) -> bytes:
    """Digest of one record's stored bytes."""
    return hashlib.sha256(_DOMAIN + record).digest()


def encode(record: StepRecord) -> bytes:
    """The bytes that are stored and hashed."""
    return pack(record.model_dump())


def decode(stored: bytes, index: int) -> StepRecord:
    """A stored record, or IntegrityError naming it."""
    try:
        return StepRecord.model_validate(unpack(stored, max_bytes=MAX_RECORD_BYTES))
    except (PeerError, ValidationError) as broken:
        raise IntegrityError(f"journal record {index} cannot be read: {broken}") from None


def walk(
    stored: Iterable[tuple[int, bytes, bytes]], first: int = 0, previous: bytes = GENESIS
) -> Iterator[tuple[StepRecord, bytes]]:
    """Each record with its bytes, in order, once its place in the chain is proved.

    `previous` is the digest of the record before the first one, where that is not the beginning.
    """
    for expected, (index, record_bytes, digest) in enumerate(stored, start=first):
        if index != expected:
            raise IntegrityError(f"journal record {expected} is missing")
        if link(record_bytes) != digest:
            raise IntegrityError(f"journal record {index} does not match its digest")
        record = decode(record_bytes, index)
        if record.index != index or record.previous != previous:
            raise IntegrityError(f"journal record {index} does not follow the one before it")
        previous = digest
        yield record, record_bytes
