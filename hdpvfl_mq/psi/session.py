"""One participant of entity resolution. Owns what both roles share: hello, order of messages.

A session is a value: `receive` returns the next one and does not change this one, so the same call
gives the same result again. It reads no clock and draws nothing; arrays with an entry for every id
are in the workspace. The result does not depend on the order in which different peers' messages
arrive. The legal moves are the `moves` of each role (stage -> handler); anything else is a
PeerError.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from hdpvfl_mq.arrays.chunked import Positions
from hdpvfl_mq.errors import CheatingError, PeerError, TermsError
from hdpvfl_mq.psi.blocks import Outgoing
from hdpvfl_mq.psi.elements import MAX_IDS, padded_size
from hdpvfl_mq.psi.exchange import Block, Exchange, Messages, put
from hdpvfl_mq.psi.seal import Link, open_link, public_key
from hdpvfl_mq.psi.stream import derive
from hdpvfl_mq.psi.toss import NONCE_BYTES, is_committed
from hdpvfl_mq.psi.workspace import Workspace

HELLO_BYTES = 32 + 64 + NONCE_BYTES  # public key, two checks, nonce
S = TypeVar("S", bound="Session")


@dataclass(frozen=True, kw_only=True, repr=False)
class Session(Exchange):
    """The state that the active and the passive role share, and the result."""

    held: Block | None = None
    found: tuple[bytes, ...] = ()  # common ids among the members of each bucket, packed marks
    shared_key: bytes = b""  # with the result: 32 bytes all parties know and the broker does not
    is_found: bool = False
    is_withheld: bool = False  # the number of common ids is outside rows_min..rows_max

    moves: ClassVar[Mapping[str, Callable[..., tuple[Any, Messages]]]]

    @property
    def is_finished(self) -> bool:
        """Whether the result is known (or withheld) and everything is sent; no message follows."""
        return (self.is_found or self.is_withheld) and not any(self.sending.values())

    @property
    def progress(self) -> tuple[int, int]:
        """Blocks sent and received so far, and their total once every peer has said hello."""
        total = 1
        if len(self.links) == len(self.peers):
            talkers = self.terms.passives if self.me == self.terms.active else (self.me,)
            total += sum(map(self._blocks_with, talkers))
        return (total if self.is_found or self.is_withheld else self.blocks_done, total)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The peers whose next message this party needs."""
        if len(self.links) < len(self.peers):
            return tuple(peer for peer in self.peers if peer not in self.links)
        return () if self.is_finished else self._needed()

    def place(self, peer: str) -> str:
        """How far the exchange with one peer is; the text changes when its message is taken."""
        incoming, sending = self.incoming.get(peer), self.sending.get(peer, ())
        parts = (
            peer in self.links,
            peer in self.waiting_for,
            (incoming.bucket, incoming.next) if incoming else None,
            (sending[0].bucket, sending[0].credits) if sending else None,
        )
        return repr(parts).replace(" ", "")

    @abstractmethod
    def _needed(self) -> tuple[str, ...]:
        """The peers whose next message this party needs once every peer has said hello."""

    def positions(self, work: Workspace) -> Positions:
        """Positions of the common ids among this party's ids, ascending, once they are found."""
        return work.positions(self._members(work), self.found)

    # -- messages in ----------------------------------------------------------------------------

    def start(self, work: Workspace) -> Messages:
        """The hello to every peer."""
        own_key = public_key(derive(self._root(work), "link"))
        payload = own_key + b"".join(self.terms.checks()) + self.nonces[self.me]
        return (Outgoing(self.peers, "hello", 0, True, payload, (self.sizes[self.me],)),)

    def receive(self: S, work: Workspace, block: Block) -> tuple[S, Messages]:
        """Take one message of a peer; return the next session and the messages to send.

        After CheatingError the caller must discard the session and never use its secret again.
        """
        sender, stage = block.sender, block.stage
        if sender not in self.peers:
            raise PeerError(f"{sender} is no party of this entity resolution, stage {stage[:32]}")
        if stage == "hello":
            return self._on_hello(work, block)
        is_spoke = self.terms.active in (self.me, sender)  # passive parties only greet each other
        if stage not in self.moves or sender not in self.links or not is_spoke:
            raise PeerError(f"{sender} sent a message that is not its turn, stage {stage[:32]}")
        size = len(block.payload)
        if size > self.terms.block_bytes:
            raise PeerError(f"{sender} sent {size} bytes in one block, stage {stage}")
        clear = self.links[sender].unseal(block.place, block.payload)
        if clear is None:
            raise PeerError(f"{sender} sent a block that does not open, stage {stage}")
        opened = replace(block, payload=clear)
        if len(self.links) < len(self.peers):
            return self._hold(opened), ()
        return self._moved(work, opened)

    def _moved(self: S, work: Workspace, block: Block) -> tuple[S, Messages]:
        return self.moves[block.stage](self, work, block)

    def _hold(self: S, block: Block) -> S:
        """Keep the active party's opening until the slower peers have said hello."""
        if self.held is not None or block.stage != "open":
            raise PeerError(f"{block.sender} sent a block before every hello, stage {block.stage}")
        return replace(self, held=block)

    def _on_hello(self: S, work: Workspace, block: Block) -> tuple[S, Messages]:
        sender, link = block.sender, self.link_of(work, block)
        after = replace(
            self,
            links=put(self.links, sender, link),
            nonces=put(self.nonces, sender, block.payload[96:]),
            sizes=put(self.sizes, sender, block.meta[0]),
        )
        return after._all_greeted(work) if len(after.links) == len(after.peers) else (after, ())

    def link_of(self, work: Workspace, block: Block) -> Link:
        """The link to a peer that says hello; an error if the hello is not as agreed."""
        sender, payload, meta = block.sender, block.payload, block.meta
        if sender in self.links or len(payload) != HELLO_BYTES or len(meta) != 1:
            raise PeerError(f"{sender} sent a malformed or second message, stage hello")
        if not 0 < meta[0] <= MAX_IDS or padded_size(meta[0]) != meta[0]:
            raise PeerError(f"{sender} sent an impossible size, stage hello")
        profile, rest = self.terms.checks()
        if payload[32:64] != profile:  # profiles matched earlier, so this peer is lying
            raise TermsError(
                f"{sender} reads ids by another profile (type, columns, case, whitespace, "
                "duplicates or empties): make the alignment settings equal at all parties"
            )
        if payload[64:96] != rest:
            raise TermsError(f"{sender} has other terms of entity resolution: compare manifests")
        nonce = payload[96:]
        if not is_committed(self.terms.commitment_of(sender), nonce, sender):
            raise CheatingError(f"{sender} shows another nonce than it committed to, stage hello")
        link = open_link(derive(self._root(work), "link"), payload[:32], self.me, sender)
        if link is None:
            raise PeerError(f"{sender} sent a degenerate key, stage hello")
        return link

    def _all_greeted(self: S, work: Workspace) -> tuple[S, Messages]:
        outgoing = self._begin(work)
        if self.held is None:
            return self, outgoing
        after, more = replace(self, held=None)._moved(work, self.held)
        return after, (*outgoing, *more)

    @abstractmethod
    def _begin(self, work: Workspace) -> Messages:
        """The first messages, once every peer has said hello."""


def own_hello(work: Workspace, me: str) -> dict[str, Any]:
    """The fields of a session before any message of a peer."""
    return {
        "sizes": MappingProxyType({me: padded_size(len(work.ids))}),
        "nonces": MappingProxyType({me: work.nonce}),
    }
