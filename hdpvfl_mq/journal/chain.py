"""Hash links between records: a digest covers a record's stored bytes, which name the digest
before.

It owns the link and its check; it is pure and knows no storage. It hashes the bytes as stored,
never a re-encoding.
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
    """A recorded step gives a different result when it is replayed."""

    def __init__(self, index: int, recorded: bytes, recomputed: bytes) -> None:
        super().__init__(
            f"step {index} does not come out as recorded: data, secret, code or numeric profile "
            "differ from those of the run; 'hdpvfl replay --diverge' shows the difference"
        )
        self.index, self.recorded, self.recomputed = index, recorded, recomputed


def link(record: bytes) -> bytes:
    """Digest of one record's stored bytes."""
    state = hashlib.sha256(_DOMAIN)
    state.update(record)
    return state.digest()


def encode(record: StepRecord) -> bytes:
    """The bytes that are stored and hashed."""
    return pack(record.model_dump())


def decode(stored: bytes, index: int) -> StepRecord:
    """Decode a stored record; IntegrityError names it if it cannot be decoded."""
    try:
        return StepRecord.model_validate(unpack(stored, max_bytes=MAX_RECORD_BYTES))
    except PeerError as broken:
        raise IntegrityError(f"journal record {index} cannot be read: {broken}") from None
    except ValidationError as broken:  # its own text has many lines and may quote values
        fields = ", ".join(sorted({".".join(map(str, e["loc"])) for e in broken.errors()})[:3])
        raise IntegrityError(f"journal record {index} is not a record: see {fields}") from None


def walk(
    stored: Iterable[tuple[int, bytes, bytes]], first: int = 0, previous: bytes = GENESIS
) -> Iterator[tuple[StepRecord, bytes]]:
    """Yield each record with its bytes, in order, after verifying its place in the chain.

    `previous` is the digest of the record before the first one that is read.
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
