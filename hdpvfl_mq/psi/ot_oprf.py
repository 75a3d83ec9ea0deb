"""The function from oblivious transfer extension. Owns queries and outputs.

After Pinkas, Rosulek, Trieu and Yanai (PaXoS, 2020), the heir of KKRT: the asker puts a message
M(x) for each element into a key-value store, and the rows of the store, encoded by a linear code C,
choose in an extension of 480 base transfers. Then F(y) = hash(Q(y) xor (C(M(y)) and s), y) with the
answerer's rows Q and secret bits s; the asker's rows T give T(x) = Q(x) xor (C(M(x)) and s) at its
own elements alone. Unlike with cuckoo hashing there is one output an element, and store and
codewords serve all answerers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi import base_ot
from hdpvfl_mq.psi.bits import columns_to_rows, transpose_bits
from hdpvfl_mq.psi.code import LENGTH, MESSAGE_BYTES, ROW_BYTES, encode_columns, encode_rows
from hdpvfl_mq.psi.curve import BlockMap, in_blocks
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
    return columns_to_rows(columns, ROW_BYTES).view("<u8")


class _OtLengths:
    def query_bytes(self, count: int) -> int:
        return LENGTH * store_cells(count) // 8

    def reply_bytes(self, count: int) -> int:
        return 0


@dataclass(frozen=True)
class OtQuery:
    """The codewords of one bucket's store; each peer gets them under columns of its own."""

    bucket: int
    elements: Words
    cells: Cells
    codewords: Octets
    keys: dict[str, tuple[list[bytes], list[bytes]]]
    mapper: BlockMap

    def read(self, peer: str, start: int, stop: int) -> bytes:
        length = self.codewords.shape[1]
        first, end = start // length, -(-stop // length)
        zeros, ones = (keys[first:end] for keys in self.keys[peer])
        columns = self.codewords[first:end] ^ _streams(zeros, self.bucket, length)
        columns ^= _streams(ones, self.bucket, length)
        return columns.tobytes()[start - first * length : stop - first * length]

    def outputs(self, peer: str, reply: bytes) -> Words:
        zeros, _ = self.keys[peer]
        table = _as_words(_streams(zeros, self.bucket, self.codewords.shape[1]))
        return hash_rows(look_up(table, self.cells), self.elements, self.mapper)


@dataclass
class OtAsker(_OtLengths):
    """Queries with the active party's elements."""

    secret: bytes
    public_seed: bytes
    mapper: BlockMap
    _keys: dict[str, tuple[list[bytes], list[bytes]]] = field(default_factory=dict)

    def opening(self, peer: str) -> bytes:
        return base_ot.open_transfers(derive(self.secret, "ot sender", peer))

    def accept_choice(self, peer: str, choice: bytes) -> None:
        points = in_blocks(choice, base_ot.POINT_BYTES)
        if len(choice) != LENGTH * base_ot.POINT_BYTES:
            raise PeerError(f"{peer} sent {len(choice)} bytes of points, stage choose")
        try:
            keys = base_ot.sender_keys(derive(self.secret, "ot sender", peer), points)
        except RuntimeError:
            raise PeerError(f"{peer} sent a point that is not on the curve, stage choose") from None
        self._keys[peer] = keys

    def prepare(self, bucket: int, elements: Words) -> OtQuery:
        seed = derive(self.public_seed, "query store", bucket)
        cells = locate(elements, len(elements), seed)
        table = solve(cells, _messages(elements, seed), derive(self.secret, "store", bucket))
        octets = table.astype("<u8").view(np.uint8).reshape(-1, 16)[:, :MESSAGE_BYTES]
        codewords = encode_columns(transpose_bits(np.ascontiguousarray(octets)))
        return OtQuery(bucket, elements, cells, codewords, self._keys, self.mapper)


@dataclass
class OtAnswerer(_OtLengths):
    """Evaluates with a passive party's secret bits."""

    secret: bytes
    public_seed: bytes
    asker: str
    mapper: BlockMap

    def choice(self, opening: bytes) -> bytes:
        if len(opening) != base_ot.POINT_BYTES:
            raise PeerError(f"{self.asker} sent {len(opening)} bytes of a point, stage open")
        key = derive(self.secret, "ot receiver")
        self._mask = expand(derive(key, "bits"), LENGTH // 8).ljust(ROW_BYTES, b"\0")
        mask_bits = np.unpackbits(np.frombuffer(self._mask, np.uint8), bitorder="little")
        self._bits = mask_bits[:LENGTH]
        try:
            points, self._keys = base_ot.choose(key, opening, self._bits.tolist())
        except RuntimeError:
            raise PeerError(f"{self.asker} sent a point not on the curve, stage open") from None
        return b"".join(points)

    def answer(self, bucket: int, query: bytes, count: int, elements: Words) -> tuple[bytes, Words]:
        seed = derive(self.public_seed, "query store", bucket)
        columns = np.frombuffer(query, dtype=np.uint8).reshape(LENGTH, -1)
        chosen = self._bits[:, np.newaxis] * columns
        chosen ^= _streams(self._keys, bucket, columns.shape[1])
        rows = look_up(_as_words(chosen), locate(elements, count, seed))
        rows ^= encode_rows(_messages(elements, seed), self._mask)
        return b"", hash_rows(rows, elements, self.mapper)
