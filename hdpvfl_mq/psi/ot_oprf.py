"""The function from oblivious transfer extension.

It owns queries and outputs. After Pinkas, Rosulek, Trieu and Yanai (PaXoS, 2020), the heir of KKRT:
the asker puts a message M(x) for each element into a key-value store, and the rows of the store,
encoded by a linear code C, choose in an extension of 480 base transfers. Then F(y) = hash(Q(y) xor
(C(M(y)) and s), y) with the answerer's rows Q and secret bits s; the asker's rows T give T(x) =
Q(x) xor (C(M(x)) and s) at its own elements only. Unlike cuckoo hashing, it has one output per
element, and store and codewords serve all answerers. `consistency.py` makes it secure against a
malicious asker: the query ends with a proof, and the answerer computes nothing with its elements
before the proof holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.errors import CheatingError, PeerError
from hdpvfl_mq.psi import base_ot
from hdpvfl_mq.psi.bits import columns_to_rows, transpose_bits
from hdpvfl_mq.psi.code import LENGTH, MESSAGE_BYTES, ROW_BYTES, encode_columns, encode_rows
from hdpvfl_mq.psi.consistency import MASK_BYTES, PROOF_BYTES, challenge, is_proved, prove
from hdpvfl_mq.psi.curve import POINT_BYTES, in_blocks
from hdpvfl_mq.psi.oprf import hash_rows
from hdpvfl_mq.psi.store import Cells, locate, look_up, solve, store_cells
from hdpvfl_mq.psi.stream import Octets, Words, derive, expand, permute_pairs


def _messages(elements: Words, seed: bytes) -> Words:
    return permute_pairs(derive(seed, "code message"), elements)


def _streams(keys: Sequence[bytes], bucket: int, length: int) -> Octets:
    """One pseudo-random bit column of `length` bytes for every base transfer key."""
    joined = b"".join([expand(derive(key, "column", bucket), length) for key in keys])
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(keys), length)


def _as_words(columns: Octets) -> Words:
    """The rows of the store, without those of the mask."""
    return columns_to_rows(columns[:, MASK_BYTES:], ROW_BYTES).view("<u8")


def _context(public_seed: bytes, answerer: str) -> bytes:
    """Bytes that identify the run, by the public seed, and the pair of parties."""
    return derive(public_seed, "base transfers", answerer)


class OtLengths:
    """A query is a store's columns with mask and proof; the reply is empty."""

    def query_bytes(self, count: int) -> int:
        return LENGTH * (MASK_BYTES + store_cells(count) // 8) + PROOF_BYTES

    def reply_bytes(self, count: int) -> int:
        return 0


@dataclass(frozen=True)
class Transfers:
    """The asker's state after the base transfers with one peer."""

    zeros: tuple[bytes, ...] = field(repr=False)
    ones: tuple[bytes, ...] = field(repr=False)
    transcript: bytes  # a hash of all messages of the transfers


@dataclass(frozen=True)
class Choice:
    """A passive party's state after the base transfers: secret bits and the keys they select."""

    mask: bytes = field(repr=False)  # the bits as a row
    keys: tuple[bytes, ...] = field(repr=False)
    transcript: bytes

    @property
    def bits(self) -> NDArray[np.uint8]:
        """The bits one by one."""
        return np.unpackbits(np.frombuffer(self.mask, np.uint8), count=LENGTH, bitorder="little")


@dataclass(frozen=True)
class OtQuery:
    """The codewords of one bucket's store; each peer gets them with its own columns and mask.

    The mask must differ from peer to peer: two proofs under one mask would show a combination of
    the store's cells to peers that collude.
    """

    bucket: int
    elements: Words
    cells: Cells
    messages: Octets
    codewords: Octets
    secret: bytes
    engine: Engine = field(repr=False)

    @property
    def _length(self) -> int:
        return MASK_BYTES + len(self.codewords[0])

    def sent_to(self, peer: str, agreed: Transfers) -> bytes:
        mask = self._mask(peer)
        rows = _streams(agreed.zeros, self.bucket, self._length)
        columns = np.hstack([encode_columns(mask), self.codewords])
        columns ^= rows
        columns ^= _streams(agreed.ones, self.bucket, self._length)
        query = columns.tobytes()
        challenged = challenge(agreed.transcript, self.bucket, query)
        return query + prove(challenged, rows, np.hstack([mask, self.messages]))

    def _mask(self, peer: str) -> Octets:
        size = len(self.messages) * MASK_BYTES
        random = expand(derive(self.secret, "mask", peer, self.bucket), size)
        return np.frombuffer(random, dtype=np.uint8).reshape(-1, MASK_BYTES)

    def outputs(self, peer: str, agreed: Transfers, reply: bytes) -> Words:
        table = _as_words(_streams(agreed.zeros, self.bucket, self._length))
        return hash_rows(look_up(table, self.cells), self.elements, self.engine)


@dataclass(frozen=True)
class OtAsker:
    """Queries with the active party's elements."""

    secret: bytes
    public_seed: bytes
    engine: Engine = field(default_factory=LocalEngine, repr=False)

    def opening(self, peer: str) -> bytes:
        return base_ot.open_transfers(derive(self.secret, "ot sender", peer))

    def agree(self, peer: str, choice: bytes) -> Transfers:
        points = in_blocks(choice, POINT_BYTES)
        if len(choice) != LENGTH * POINT_BYTES:
            raise PeerError(f"{peer} sent {len(choice)} bytes of points, stage choose")
        context = _context(self.public_seed, peer)
        try:
            zeros, ones = base_ot.sender_keys(
                derive(self.secret, "ot sender", peer), context, points
            )
        except RuntimeError:
            raise PeerError(f"{peer} sent a point that is not on the curve, stage choose") from None
        transcript = derive(context, "transcript", self.opening(peer), choice)
        return Transfers(tuple(zeros), tuple(ones), transcript)

    def prepare(self, bucket: int, elements: Words) -> OtQuery:
        seed = derive(self.public_seed, "query store", bucket)
        cells = locate(elements, len(elements), seed)
        table = solve(cells, _messages(elements, seed), derive(self.secret, "store", bucket))
        octets = table.astype("<u8").view(np.uint8).reshape(-1, 16)[:, :MESSAGE_BYTES]
        messages = transpose_bits(np.ascontiguousarray(octets))
        return OtQuery(
            bucket,
            elements,
            cells,
            messages,
            encode_columns(messages),
            secret=self.secret,
            engine=self.engine,
        )


@dataclass(frozen=True)
class OtAnswerer:
    """Evaluates with a passive party's secret bits."""

    secret: bytes
    public_seed: bytes
    me: str
    asker: str
    engine: Engine = field(default_factory=LocalEngine, repr=False)

    def choose(self, opening: bytes) -> tuple[bytes, Choice]:
        if len(opening) != POINT_BYTES:
            raise PeerError(f"{self.asker} sent {len(opening)} bytes of a point, stage open")
        key, context = derive(self.secret, "ot receiver"), _context(self.public_seed, self.me)
        mask = expand(derive(key, "bits"), LENGTH // 8).ljust(ROW_BYTES, b"\0")
        unmade = Choice(mask, (), b"")
        try:
            points, keys = base_ot.choose(key, context, opening, unmade.bits.tolist())
        except RuntimeError:
            raise PeerError(f"{self.asker} sent a point not on the curve, stage open") from None
        choice = b"".join(points)
        transcript = derive(context, "transcript", opening, choice)
        return choice, replace(unmade, keys=tuple(keys), transcript=transcript)

    def answer(
        self, agreed: Choice, bucket: int, query: bytes, count: int, elements: Words
    ) -> tuple[bytes, Words]:
        columns = np.frombuffer(query[:-PROOF_BYTES], dtype=np.uint8).reshape(LENGTH, -1)
        bits = agreed.bits
        chosen = bits[:, np.newaxis] * columns
        chosen ^= _streams(agreed.keys, bucket, columns.shape[1])
        challenged = challenge(agreed.transcript, bucket, query[:-PROOF_BYTES])
        if not is_proved(challenged, chosen, bits, query[-PROOF_BYTES:]):
            raise CheatingError(f"{self.asker} sent a query that is not of codewords, stage query")
        seed = derive(self.public_seed, "query store", bucket)
        rows = look_up(_as_words(chosen), locate(elements, count, seed))
        rows ^= encode_rows(_messages(elements, seed), agreed.mask)
        return b"", hash_rows(rows, elements, self.engine)
