"""One participant of entity resolution. Owns what both roles share: hello, links, streams.

A session is deterministic: the same calls in the same order give the same messages, and the result
does not depend on the order in which different peers' messages arrive. It reads no clock and draws
nothing. The legal moves are the `moves` of each role (stage -> handler); anything else is a
PeerError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from hdpvfl_mq.arrays.chunked import Positions, Room
from hdpvfl_mq.errors import CheatingError, PeerError, SettingsError
from hdpvfl_mq.psi.blocks import Outgoing, Receiving, Sending, block_count
from hdpvfl_mq.psi.curve import BlockMap
from hdpvfl_mq.psi.elements import (
    MAX_IDS,
    bucket_capacity,
    bucket_count,
    hash_ids,
    padded_size,
    split_buckets,
)
from hdpvfl_mq.psi.match import packed_bytes
from hdpvfl_mq.psi.methods import BUCKET_IDS, Function, Method, choose_method
from hdpvfl_mq.psi.oprf import Lengths
from hdpvfl_mq.psi.seal import SEAL_BYTES, Link, open_link, public_key
from hdpvfl_mq.psi.stream import Octets, derive
from hdpvfl_mq.psi.toss import NONCE_BYTES, is_committed, nonce_of, toss

HELLO_BYTES = 32 + 64 + NONCE_BYTES  # public key, two checks, nonce
MIN_BLOCK_BYTES = 1 << 14  # the 480 points of a choice fit into one block


@dataclass(frozen=True)
class Terms:
    """What all parties agree on before they start; the hello checks that they do."""

    method: Literal["auto", Method]  # auto: all choose alike from the sizes of the hellos
    active: str
    passives: tuple[str, ...]
    session_id: bytes  # 32 bytes, other ones for every run
    commitments: tuple[bytes, ...]  # to every party's nonce (toss.py), the active party's first
    profile_digest: bytes
    rows_min: int = 0
    rows_max: int = MAX_IDS
    block_bytes: int = 1 << 22
    window: int = 8
    bucket_ids: int | None = None  # None takes what suits the method

    def __post_init__(self) -> None:
        if not self.passives or len({self.active, *self.passives}) != len(self.passives) + 1:
            raise SettingsError(
                "entity resolution needs one or more passive parties, all different"
            )
        if len(self.commitments) != len(self.parties):
            raise SettingsError("entity resolution needs a commitment of every party")
        too_few = self.bucket_ids is not None and self.bucket_ids < 1
        if self.block_bytes < MIN_BLOCK_BYTES or self.window < 1 or too_few:
            raise SettingsError(
                f"block_bytes must be at least {MIN_BLOCK_BYTES}, window and bucket_ids positive"
            )

    @property
    def parties(self) -> tuple[str, ...]:
        """All of them, the active party first."""
        return (self.active, *self.passives)

    def checks(self) -> tuple[bytes, bytes]:
        """Hashes of the id profile and of all the rest; neither is secret."""
        rest = repr(replace(self, profile_digest=b"")).encode()
        return (
            derive(self.profile_digest, "id profile"),
            derive(self.session_id, "psi terms 2", rest),
        )


@dataclass(frozen=True)
class OwnSet:
    """A party's distinct normalised ids, and room for what is worked out for each of them."""

    ids: Sequence[bytes] = field(repr=False)
    room: Room = field(default=np.empty, repr=False)
    mapper: BlockMap = map


@dataclass(frozen=True)
class Block:
    """One received message, payload unsealed."""

    sender: str
    stage: str
    index: int
    last: bool
    payload: bytes
    meta: tuple[int, ...]


class Session(ABC):
    """State common to the active and the passive role."""

    moves: ClassVar[dict[str, Callable[..., tuple[Outgoing, ...]]]]
    _lengths: Lengths

    def __init__(self, terms: Terms, me: str, own: OwnSet, secret: bytes) -> None:
        self.terms = terms
        self.me = me
        self.result: Positions | None = None
        self.shared_key = b""  # with the result: 32 bytes all parties know and the broker does not
        self.withheld = False  # True when the number of common ids is outside rows_min..rows_max
        self._peers = tuple(p for p in terms.parties if p != me)
        self._root = derive(secret, "psi session", terms.session_id, me)
        self._own, self._room = own, own.room
        self._nonces = {me: nonce_of(secret)}
        self._sizes = {me: padded_size(len(own.ids))}
        self._links: dict[str, Link] = {}
        self._held: Block | None = None
        self._is_cheated = False
        self._sending: dict[str, deque[Sending]] = {peer: deque() for peer in self._peers}
        self._incoming: dict[str, Receiving] = {}
        self._blocks_done, self._blocks_total = 0, 1

    @property
    def progress(self) -> tuple[int, int]:
        """Blocks sent and received so far, and in all once every peer has said hello."""
        is_over = self.result is not None or self.withheld
        return (self._blocks_total if is_over else self._blocks_done, self._blocks_total)

    @property
    def is_finished(self) -> bool:
        """Whether the result is there (or withheld) and all has been sent; no message follows."""
        is_over = self.result is not None or self.withheld
        return is_over and not any(self._sending.values())

    def start(self) -> tuple[Outgoing, ...]:
        """The hello to every peer."""
        own_key = public_key(derive(self._root, "link"))
        payload = own_key + b"".join(self.terms.checks()) + self._nonces[self.me]
        return (Outgoing(self._peers, "hello", 0, True, payload, (self._sizes[self.me],)),)

    def receive(
        self,
        sender: str,
        stage: str,
        index: int,
        last: bool,
        payload: bytes,
        meta: tuple[int, ...],
    ) -> tuple[Outgoing, ...]:
        """Take one message of a peer; what it makes this party send.

        PeerError refuses the message and changes nothing; after CheatingError the session is over
        and refuses everything.
        """
        if sender not in self._peers:
            raise PeerError(f"{sender} is no party of this entity resolution, stage {stage[:32]}")
        if self._is_cheated:
            raise PeerError(f"{sender} goes on after a failed proof, stage {stage[:32]}")
        if stage == "hello":
            return self._on_hello(sender, payload, meta)
        is_spoke = self.terms.active in (self.me, sender)  # passive parties only greet each other
        if stage not in self.moves or sender not in self._links or not is_spoke:
            raise PeerError(f"{sender} sent a message that is not its turn, stage {stage[:32]}")
        if len(payload) > self.terms.block_bytes:
            raise PeerError(f"{sender} sent {len(payload)} bytes in one block, stage {stage}")
        clear = self._links[sender].unseal((stage, index, last, meta), payload)
        if clear is None:
            raise PeerError(f"{sender} sent a block that does not open, stage {stage}")
        block = Block(sender, stage, index, last, clear, meta)
        if len(self._links) < len(self._peers):
            return self._hold(block)
        try:
            return self.moves[stage](self, block)
        except CheatingError:
            self._is_cheated = True
            raise

    def _hold(self, block: Block) -> tuple[Outgoing, ...]:
        """Keep the active party's opening until the slower peers have said hello."""
        if self._held is not None or block.stage != "open":
            raise PeerError(f"{block.sender} sent a block before every hello, stage {block.stage}")
        self._held = block
        return ()

    def _on_hello(self, sender: str, payload: bytes, meta: tuple[int, ...]) -> tuple[Outgoing, ...]:
        if sender in self._links or len(payload) != HELLO_BYTES or len(meta) != 1:
            raise PeerError(f"{sender} sent a malformed or second message, stage hello")
        if not 0 < meta[0] <= MAX_IDS or padded_size(meta[0]) != meta[0]:
            raise PeerError(f"{sender} sent an impossible size, stage hello")
        profile, rest = self.terms.checks()
        if payload[32:64] != profile:
            # All have stated the same profile before; who now has another is not believed.
            raise PeerError(
                f"{sender} reads ids by another profile (type, columns, case, whitespace, "
                "duplicates or empties): make the alignment settings equal at all parties"
            )
        if payload[64:96] != rest:
            raise PeerError(f"{sender} has other terms of entity resolution: compare manifests")
        nonce = payload[96:]
        if not is_committed(
            self.terms.commitments[self.terms.parties.index(sender)], nonce, sender
        ):
            raise PeerError(f"{sender} shows another nonce than it committed to, stage hello")
        link = open_link(derive(self._root, "link"), payload[:32], self.me, sender)
        if link is None:
            raise PeerError(f"{sender} sent a degenerate key, stage hello")
        self._links[sender], self._nonces[sender] = link, nonce
        self._sizes[sender] = meta[0]
        return self._all_greeted() if len(self._links) == len(self._peers) else ()

    def _all_greeted(self) -> tuple[Outgoing, ...]:
        sizes, terms = self._sizes.values(), self.terms
        self._seed = toss(terms.session_id, [self._nonces[party] for party in terms.parties])
        method = choose_method(sizes) if terms.method == "auto" else terms.method
        key = derive(self._root, "oprf", self._seed)
        self._prepare(Function(method, terms.active, key, self._seed, self._own.mapper))
        self._elements = hash_ids(self._own.ids, self._seed, self._room)
        self._buckets = bucket_count(sizes, terms.bucket_ids or BUCKET_IDS[method])
        self._members = split_buckets(self._elements, self._buckets, self._room)
        active = self.me == self.terms.active
        talkers = self.terms.passives if active else (self.me,)
        self._blocks_total = 1 + sum(map(self._blocks_with, talkers))
        outgoing = self._begin()
        if (held := self._held) is not None:
            self._held = None
            outgoing += self.moves[held.stage](self, held)
        return outgoing

    @abstractmethod
    def _prepare(self, function: Function) -> None:
        """Make this side of the function; sets `_lengths`."""

    @abstractmethod
    def _begin(self) -> tuple[Outgoing, ...]:
        """Every peer has said hello."""

    def _capacity(self, party: str) -> int:
        return bucket_capacity(self._sizes[party], self._buckets)

    @property
    def _clear_bytes(self) -> int:
        return self.terms.block_bytes - SEAL_BYTES

    @property
    def _query_bytes(self) -> int:
        return self._lengths.query_bytes(self._capacity(self.terms.active))

    def _answer_bytes(self, passive: str) -> int:
        packed = packed_bytes(self._capacity(passive), len(self.terms.passives))
        return self._lengths.reply_bytes(self._capacity(self.terms.active)) + packed

    def _blocks_with(self, passive: str) -> int:
        """Blocks of queries and answers between the active party and this one."""
        sizes = (self._query_bytes, self._answer_bytes(passive))
        return self._buckets * sum(block_count(size, self._clear_bytes) for size in sizes)

    def _sealed(self, to: str, stage: str, payload: bytes) -> Outgoing:
        sealed = self._links[to].seal((stage, 0, True, ()), payload)
        return Outgoing((to,), stage, 0, True, sealed)

    def _send(
        self, to: str, stage: str, bucket: int, size: int, read: Callable[[int, int], bytes]
    ) -> tuple[Outgoing, ...]:
        """Queue a string to a peer; strings leave one after the other."""
        sending = Sending(stage, bucket, size, read, self._clear_bytes, self.terms.window)
        self._sending[to].append(sending)
        return self._pump(to)

    def _expect(
        self, sender: str, stage: str, bucket: int, size: int, room: Room = np.empty
    ) -> None:
        self._incoming[sender] = Receiving(
            stage, bucket, size, self._clear_bytes, self.terms.window, room
        )

    def _pump(self, to: str) -> tuple[Outgoing, ...]:
        """The blocks that the window lets go."""
        queue = self._sending[to]
        outgoing = []
        while queue:
            stage, meta = queue[0].stage, (queue[0].bucket,)
            for index, last, payload in queue[0].ready():
                sealed = self._links[to].seal((stage, index, last, meta), payload)
                outgoing.append(Outgoing((to,), stage, index, last, sealed, meta))
            if not queue[0].is_sent:
                break
            queue.popleft()
        self._blocks_done += len(outgoing)
        return tuple(outgoing)

    def _on_credit(self, block: Block) -> tuple[Outgoing, ...]:
        queue = self._sending[block.sender]
        if not queue or (queue[0].bucket,) != block.meta or not queue[0].credit(block.index):
            raise PeerError(f"{block.sender} sent a credit for nothing, stage credit")
        return self._pump(block.sender)

    def _take(self, block: Block) -> tuple[Octets | None, tuple[Outgoing, ...]]:
        """The whole string if this is its last block, else a credit where one is due.

        The last block counts only when its handler has found the string good and calls `_taken`.
        """
        incoming = self._incoming.get(block.sender)
        if (
            incoming is None
            or (incoming.stage, (incoming.bucket,)) != (block.stage, block.meta)
            or not incoming.fits(block.index, block.last, len(block.payload))
        ):
            raise PeerError(f"{block.sender} sent a block out of place, stage {block.stage}")
        if block.last:
            return incoming.whole(block.payload), ()
        is_credit_due = incoming.append(block.payload)
        self._blocks_done += 1
        if not is_credit_due:
            return None, ()
        place = ("credit", block.index, True, block.meta)
        sealed = self._links[block.sender].seal(place, b"")
        return None, (Outgoing((block.sender,), "credit", block.index, True, sealed, block.meta),)

    def _taken(self, sender: str) -> None:
        """The string from this sender is complete and good."""
        del self._incoming[sender]
        self._blocks_done += 1
