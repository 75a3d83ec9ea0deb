"""One participant's view of an exchange of entity resolution.

It owns what follows from the terms and the hellos (seed, method, buckets, lengths) and the sending
and receiving of long strings; it knows no move. An exchange is a value: methods return a new
exchange and do not change this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from hdpvfl_mq.arrays.chunked import Groups
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.blocks import Outgoing, Receiving, Sending, block_count
from hdpvfl_mq.psi.elements import bucket_capacity, bucket_count
from hdpvfl_mq.psi.match import packed_bytes
from hdpvfl_mq.psi.methods import METHODS, Function, method_for
from hdpvfl_mq.psi.oprf import Lengths
from hdpvfl_mq.psi.seal import SEAL_BYTES, Link, Place
from hdpvfl_mq.psi.stream import Words, derive
from hdpvfl_mq.psi.terms import Terms
from hdpvfl_mq.psi.toss import toss
from hdpvfl_mq.psi.workspace import Workspace
from schemas.config import AlignmentMethod

Messages = tuple[Outgoing, ...]
E = TypeVar("E", bound="Exchange")


def nothing() -> Mapping[Any, Any]:
    """A mapping without entries."""
    return MappingProxyType({})


def put(mapping: Mapping[Any, Any], key: Any, value: Any) -> Mapping[Any, Any]:
    """The mapping with one entry added or replaced."""
    return MappingProxyType({**mapping, key: value})


def without(mapping: Mapping[Any, Any], key: Any) -> Mapping[Any, Any]:
    """The mapping without an entry."""
    return MappingProxyType({k: v for k, v in mapping.items() if k != key})


@dataclass(frozen=True)
class Block:
    """One message of a peer, as received or with its payload decrypted."""

    sender: str
    stage: str
    index: int
    last: bool
    payload: bytes = field(repr=False)
    meta: tuple[int, ...]

    @property
    def place(self) -> Place:
        """The place in the session that it is sealed for."""
        return self.stage, self.index, self.last, self.meta


@dataclass(frozen=True, kw_only=True, repr=False)
class Exchange:
    """Parties, links and strings in transfer."""

    terms: Terms
    me: str
    sizes: Mapping[str, int]  # padded
    nonces: Mapping[str, bytes]
    links: Mapping[str, Link] = field(default_factory=nothing)  # to the peers that have said hello
    sending: Mapping[str, tuple[Sending, ...]] = field(default_factory=nothing)
    incoming: Mapping[str, Receiving] = field(default_factory=nothing)
    blocks_done: int = 0

    # -- what follows from the hellos -----------------------------------------------------------
    # What is cached follows from the fields, which never change, and looks at all parties. Each
    # message and each status asks for it, some of them once for each party.

    @property
    def peers(self) -> tuple[str, ...]:
        """All other parties."""
        return tuple(party for party in self.terms.parties if party != self.me)

    @cached_property
    def seed(self) -> bytes:
        """The public seed, once every peer has said hello."""
        return toss(self.terms.session_id, [self.nonces[party] for party in self.terms.parties])

    @cached_property
    def method(self) -> AlignmentMethod:
        """The manifest's method, or the one that all parties choose from the sizes."""
        return method_for(self.terms.method, self.sizes.values())

    @cached_property
    def buckets(self) -> int:
        """Number of buckets into which every set is split."""
        return bucket_count(
            self.sizes.values(), self.terms.bucket_ids or METHODS[self.method].bucket_ids
        )

    # -- what the roles need --------------------------------------------------------------------

    def _root(self, work: Workspace) -> bytes:
        return derive(work.secret, "psi session", self.terms.session_id, self.me)

    def _function(self, work: Workspace) -> Function:
        key = derive(self._root(work), "oprf", self.seed)
        return Function(self.method, self.terms.active, key, self.seed, work.engine)

    def _elements(self, work: Workspace) -> Words:
        return work.elements(self.seed)

    def _members(self, work: Workspace) -> Groups:
        return work.members(self.seed, self.buckets)

    def _capacity(self, party: str) -> int:
        return bucket_capacity(self.sizes[party], self.buckets)

    @property
    def _lengths(self) -> Lengths:
        return METHODS[self.method].lengths

    @property
    def _clear_bytes(self) -> int:
        return self.terms.block_bytes - SEAL_BYTES

    @property
    def _query_bytes(self) -> int:
        return self._lengths.query_bytes(self._capacity(self.terms.active))

    @property
    def _reply_bytes(self) -> int:
        return self._lengths.reply_bytes(self._capacity(self.terms.active))

    def _answer_bytes(self, passive: str) -> int:
        return self._reply_bytes + packed_bytes(self._capacity(passive), len(self.terms.passives))

    def _blocks_with(self, passive: str) -> int:
        """Number of blocks of queries and answers between the active party and this party."""
        sizes = (self._query_bytes, self._answer_bytes(passive))
        return self.buckets * sum(block_count(size, self._clear_bytes) for size in sizes)

    # -- strings in blocks ----------------------------------------------------------------------

    def _sealed(self, to: str, stage: str, payload: bytes) -> Outgoing:
        sealed = self.links[to].seal((stage, 0, True, ()), payload)
        return Outgoing((to,), stage, 0, True, sealed)

    def _sending(self, stage: str, bucket: int, size: int, data: bytes | None) -> Sending:
        return Sending(stage, bucket, size, self._clear_bytes, self.terms.window, data)

    def _send(self: E, work: Workspace, to: str, sending: Sending) -> tuple[E, Messages]:
        """Queue a string to a peer; strings are sent one after the other."""
        queue = (*self.sending.get(to, ()), sending)
        return self._pump(work, to, queue)

    def _expect(self: E, sender: str, stage: str, bucket: int, size: int) -> E:
        expected = Receiving(stage, bucket, size, self._clear_bytes, self.terms.window)
        return replace(self, incoming=put(self.incoming, sender, expected))

    def _pump(self: E, work: Workspace, to: str, queue: tuple[Sending, ...]) -> tuple[E, Messages]:
        """Send as many blocks of a queue as the window allows."""
        outgoing: list[Outgoing] = []
        while queue:
            sending = queue[0]
            for index in range(sending.next, sending.allowed):
                outgoing.append(self._block(work, to, sending, index))
            sending = replace(sending, next=sending.allowed)
            queue = (sending, *queue[1:])
            if not sending.is_sent:
                break
            queue = queue[1:]
        after = replace(
            self,
            sending=put(self.sending, to, queue),
            blocks_done=self.blocks_done + len(outgoing),
        )
        return after, tuple(outgoing)

    def _block(self, work: Workspace, to: str, sending: Sending, index: int) -> Outgoing:
        start, stop = sending.bounds(index)
        whole = sending.data
        payload = self._read(work, start, stop) if whole is None else whole[start:stop]
        last, meta = index == sending.count - 1, (sending.bucket,)
        sealed = self.links[to].seal((sending.stage, index, last, meta), payload)
        return Outgoing((to,), sending.stage, index, last, sealed, meta)

    def _read(self, work: Workspace, start: int, stop: int) -> bytes:
        """Part of a string that is too long to hold in memory."""
        raise NotImplementedError

    def _on_credit(self: E, work: Workspace, block: Block) -> tuple[E, Messages]:
        queue = self.sending.get(block.sender, ())
        credited = queue[0].credited(block.index) if queue else None
        if credited is None or (credited.bucket,) != block.meta:
            raise PeerError(f"{block.sender} sent a credit for nothing, stage credit")
        return self._pump(work, block.sender, (credited, *queue[1:]))

    def _take(self: E, block: Block, payload: bytes) -> tuple[E, bytes | None, Messages]:
        """The whole string if this is its last block, else a credit if one is due.

        `payload` is the part of the block to keep.
        """
        incoming = self.incoming.get(block.sender)
        if (
            incoming is None
            or (incoming.stage, (incoming.bucket,)) != (block.stage, block.meta)
            or not incoming.fits(block.index, block.last, len(block.payload))
        ):
            raise PeerError(f"{block.sender} sent a block out of place, stage {block.stage}")
        incoming, done = incoming.with_part(payload), self.blocks_done + 1
        if block.last:
            others = without(self.incoming, block.sender)
            after = replace(self, incoming=others, blocks_done=done)
            return after, b"".join(incoming.parts), ()
        after = replace(self, incoming=put(self.incoming, block.sender, incoming), blocks_done=done)
        if not incoming.is_credit_due:
            return after, None, ()
        place = ("credit", block.index, True, block.meta)
        sealed = self.links[block.sender].seal(place, b"")
        credit = Outgoing((block.sender,), "credit", block.index, True, sealed, block.meta)
        return after, None, (credit,)
