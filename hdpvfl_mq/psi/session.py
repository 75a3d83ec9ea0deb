"""One participant of entity resolution.

It owns what both roles share: hello, order of messages. A session is a value: `receive` returns the
next one and does not change this one, so the same call gives the same result again. It reads no
clock and draws no random number; arrays with an entry for every id are in the workspace. The result
does not depend on the order in which different peers' messages arrive. The legal moves are the
`moves` of each role (stage -> handler); anything else is a PeerError.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from hdpvfl_mq.arrays.chunked import Positions
from hdpvfl_mq.errors import CheatingError, MembersError, PeerError, TermsError
from hdpvfl_mq.psi.blocks import Outgoing
from hdpvfl_mq.psi.elements import MAX_IDS, padded_size
from hdpvfl_mq.psi.exchange import Block, Exchange, Messages, nothing, put
from hdpvfl_mq.psi.greeting import SignedHello, read_hello, read_hellos, statement
from hdpvfl_mq.psi.seal import KeyPair, Link, key_pair, open_link
from hdpvfl_mq.psi.stream import derive
from hdpvfl_mq.psi.toss import is_committed
from hdpvfl_mq.psi.workspace import Signatures, Workspace

S = TypeVar("S", bound="Session")


@dataclass(frozen=True, kw_only=True, repr=False)
class Session(Exchange):
    """The state that the active and the passive role share, and the result."""

    held: Block | None = None
    hellos: Mapping[str, SignedHello] = field(default_factory=nothing)  # to be relayed
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
            greeters = self.peers if self._is_greeted_by_all else (self.terms.active,)
            return tuple(peer for peer in greeters if peer not in self.links)
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
        """The hello to every peer, or to the active party, which relays it."""
        if not self.terms.is_relayed:
            return (self._hello(self.peers, self._own_hello(work)),)
        if self.me == self.terms.active:
            return ()  # its own hello travels with those of all
        own = self._signed_hello(work)
        return (self._hello((self.terms.active,), own.hello + own.signature),)

    def _hello(self, to: tuple[str, ...], payload: bytes) -> Outgoing:
        return Outgoing(to, "hello", 0, True, payload, (self.sizes[self.me],))

    def _own_hello(self, work: Workspace) -> bytes:
        checks = b"".join(self.terms.checks())
        return self._link_keys(work).public + checks + self.nonces[self.me] + self.terms.members

    def _signed_hello(self, work: Workspace) -> SignedHello:
        hello, size = self._own_hello(work), self.sizes[self.me]
        stated = statement(self.terms.session_id, self.me, hello, size)
        return SignedHello(hello, size, _signatures(work).sign(stated))

    def _link_keys(self, work: Workspace) -> KeyPair:
        root = self._root(work)
        return work.once("link keys", root, lambda: key_pair(derive(root, "link")))

    @property
    def _is_greeted_by_all(self) -> bool:
        """Whether every peer says hello to this party itself."""
        return not self.terms.is_relayed or self.me == self.terms.active

    def receive(self: S, work: Workspace, block: Block) -> tuple[S, Messages]:
        """Take one message of a peer; return the next session and the messages to send.

        After CheatingError the caller must discard the session and never use its secret again.
        """
        sender, stage = block.sender, block.stage
        if sender not in self.peers:
            raise PeerError(
                f"{sender} is not a party of this entity resolution, stage {stage[:32]}"
            )
        if stage == "hello":
            return self._on_hello(work, block)
        if stage == "hellos":
            return self._on_hellos(work, block)
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
        sender, (link, hello) = block.sender, self.greeted_by(work, block)
        after = replace(
            self,
            links=put(self.links, sender, link),
            nonces=put(self.nonces, sender, hello.nonce),
            sizes=put(self.sizes, sender, hello.size),
            hellos=put(self.hellos, sender, hello) if self.terms.is_relayed else self.hellos,
        )
        return after._all_greeted(work) if len(after.links) == len(after.peers) else (after, ())

    def greeted_by(self, work: Workspace, block: Block) -> tuple[Link, SignedHello]:
        """The link to a peer that says hello; an error if the hello is not as agreed."""
        sender, is_signed = block.sender, self.terms.is_relayed
        hello = read_hello(block.payload, block.meta, is_signed=is_signed)
        if sender in self.links or hello is None or not self._is_greeted_by_all:
            raise PeerError(f"{sender} sent a malformed or second message, stage hello")
        return self._link_of(work, sender, hello), hello

    def _on_hellos(self: S, work: Workspace, block: Block) -> tuple[S, Messages]:
        """Take the hellos of all parties, which the active party relays.

        An honest active party has checked every hello under its own terms, and its own comes first:
        if that one has this party's terms, it is to blame for whatever is wrong with the others.
        """
        sender = block.sender
        listed = read_hellos(self.terms.parties, block.payload)
        if self._is_greeted_by_all or sender != self.terms.active or self.links or listed is None:
            raise PeerError(f"{sender} sent a malformed or second message, stage hellos")
        links, nonces, sizes = dict[str, Link](), dict[str, bytes](), dict[str, int]()
        for party, hello in listed:
            if party != self.me:
                links[party] = self._relayed(work, party, hello)
            elif hello != self._signed_hello(work):
                raise CheatingError(f"{sender} relays a hello that differs from this party's own")
            nonces[party], sizes[party] = hello.nonce, hello.size
        after = replace(
            self,
            links=MappingProxyType(links),
            nonces=MappingProxyType(nonces),
            sizes=MappingProxyType(sizes),
        )
        return after._all_greeted(work)

    def _relayed(self, work: Workspace, party: str, hello: SignedHello) -> Link:
        try:
            return self._link_of(work, party, hello)
        except PeerError as wrong:
            if party == self.terms.active:
                raise
            active = self.terms.active
            raise CheatingError(f"{active} relays what it had to refuse: {wrong}") from None

    def _link_of(self, work: Workspace, party: str, hello: SignedHello) -> Link:
        """The link to a party by its hello; an error if the hello is not as agreed."""
        if not 0 < hello.size <= MAX_IDS or padded_size(hello.size) != hello.size:
            raise PeerError(f"{party} sent an impossible size, stage hello")
        profile, rest = self.terms.checks()
        if hello.profile_check != profile:  # profiles matched earlier, so this peer is lying
            raise TermsError(
                f"{party} reads ids by another profile (type, columns, case, whitespace, "
                "duplicates or empties): make the alignment settings equal at all parties"
            )
        if hello.terms_check != rest:
            raise TermsError(f"{party} has other terms of entity resolution: compare manifests")
        if hello.members != self.terms.members:
            raise MembersError(
                f"{party} knows other members or keys: compare [[peers]], stage hello"
            )
        if not is_committed(self.terms.commitment_of(party), hello.nonce, party):
            raise CheatingError(f"{party} shows a nonce that it did not commit to, stage hello")
        if self.terms.is_relayed:  # after the terms: parties with other terms sign other statements
            stated = statement(self.terms.session_id, party, hello.hello, hello.size)
            if not _signatures(work).is_signed(party, stated, hello.signature):
                raise CheatingError(f"{party} has not signed its hello, stage hello")
        link = open_link(self._link_keys(work), hello.key, self.me, party)
        if link is None:
            raise PeerError(f"{party} sent a degenerate key, stage hello")
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


def _signatures(work: Workspace) -> Signatures:
    assert work.signatures is not None
    return work.signatures
