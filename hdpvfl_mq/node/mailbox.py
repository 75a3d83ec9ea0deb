"""A node's correspondence: one numbered stream to and from every peer, signed both ways.

It owns who may write what to whom, the order of a stream and what is not acknowledged yet; it knows
no role and no store. All of it is rebuilt by folding the journal, or taken from a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.wire.codec import Frames, decode_header, encode_body, encode_header
from hdpvfl_mq.wire.sequence import UNACKNOWLEDGED_BYTES_MAX, Inbox, Outbox
from hdpvfl_mq.wire.signing import envelope_digest, frames_digest, sign, verify
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION, Delivery, Header
from schemas.ids import PartyId
from schemas.messages import GREETINGS, ROUTES, Ack, Message
from schemas.snapshot import DIGESTS_MAX, StreamMark

REFUSED_BYTES_MAX = 64 * 2**20  # of one peer that one process puts into its journal
COPIES_NOTED_MAX = 1000  # copies one process records; a bad link makes many


@dataclass(frozen=True)
class Stamp:
    """What every envelope says of its sender's process and journal."""

    epoch: int
    head: bytes
    size: int
    root: bytes


class Mailbox:
    """The streams of one node."""

    def __init__(self, identity: Identity, contacts: Mapping[PartyId, Contact]) -> None:
        self._identity, self._contacts = identity, dict(contacts)
        self._inbox: dict[PartyId, Inbox[tuple[Header, Frames]]] = {p: Inbox() for p in contacts}
        self._outbox: dict[PartyId, Outbox[Frames]] = {p: Outbox() for p in contacts}
        self._seen: dict[PartyId, bytes] = dict.fromkeys(contacts, NO_PARENT)
        for outbox in self._outbox.values():
            outbox.digests[0] = NO_PARENT  # who has seen nothing yet
        self._bare_acks: dict[PartyId, Frames] = {}
        self._owed: set[PartyId] = set()
        self._copies_noted = 0
        self._refused_bytes: Counter[PartyId] = Counter()
        self.greeting: Frames | None = None  # this process's hello, first on every connection

    def meet(self, party: PartyId, contact: Contact) -> None:
        """Read a peer's envelopes from now on, with this key; its stream goes on if it has one."""
        self._contacts[party] = contact
        self._inbox.setdefault(party, Inbox())
        self._outbox.setdefault(party, Outbox())
        self._seen.setdefault(party, NO_PARENT)

    # -- out ----------------------------------------------------------------------------------

    def write(self, to: Sequence[PartyId], message: Message, parent: bytes, stamp: Stamp) -> Frames:
        """One envelope with the next number of each receiver, kept until all have recorded it."""
        numbers = {party: self._outbox[party].number() for party in to}
        deliveries = tuple(self._delivery(party, number) for party, number in numbers.items())
        frames = self._envelope(deliveries, message, parent, stamp)
        digest = frames_digest(frames)
        for party, number in numbers.items():
            self._outbox[party].digests[number] = digest
            self._outbox[party].keep(number, frames, _size(frames))
            self._owed.discard(party)
        if message.kind in GREETINGS:
            self.greeting = frames
        return frames

    def acknowledgement(self, stamp: Stamp) -> Frames | None:
        """One envelope that says what has been recorded, if anybody is owed that."""
        if not self._owed:
            return None
        to = tuple(self._delivery(party, 0) for party in sorted(self._owed))
        self._owed.clear()
        return self._envelope(to, Ack(), NO_PARENT, stamp)

    def owe_all(self) -> None:
        """Tell everybody what has been recorded: a process before this one may not have."""
        self._owed.update(self._contacts)

    def unacknowledged(self) -> tuple[Frames, ...]:
        """Stored envelopes some peer has not recorded yet, to be sent again as they are."""
        waiting: dict[int, Frames] = {}
        for outbox in self._outbox.values():
            for frames, _ in outbox.waiting.values():
                waiting[id(frames)] = frames
        return tuple(waiting.values())

    @property
    def owes(self) -> bool:
        """Whether a peer waits for an acknowledgement that no envelope has carried yet."""
        return bool(self._owed)

    @property
    def has_unacknowledged(self) -> bool:
        """Whether some peer has not recorded something that was sent to it."""
        return any(outbox.waiting for outbox in self._outbox.values())

    @property
    def acknowledged(self) -> int:
        """How many deliveries peers have acknowledged in all; rises when something got through."""
        return sum(outbox.acknowledged for outbox in self._outbox.values())

    def _envelope(
        self, to: tuple[Delivery, ...], message: Message, parent: bytes, stamp: Stamp
    ) -> Frames:
        header = encode_header(
            Header(
                version=PROTOCOL_VERSION,
                run=self._identity.run,
                sender=self._identity.party,
                epoch=max(stamp.epoch, 1),
                kind=message.kind,
                to=to,
                parent=parent,
                head=stamp.head,
                size=stamp.size,
                root=stamp.root,
            )
        )
        body, arrays = encode_body(message)
        signature = sign(self._identity.signing_key, envelope_digest(header, body, arrays))
        return (header, signature, body, *arrays)

    def _delivery(self, party: PartyId, sequence: int) -> Delivery:
        ack, seen = self._inbox[party].received, self._seen[party]
        return Delivery(party=party, sequence=sequence, ack=ack, seen=seen)

    # -- in -----------------------------------------------------------------------------------

    def accept(self, frames: Frames) -> None:
        """Verify an envelope and put it in its place; PeerError if it may not be here."""
        header, me = decode_header(frames), self._identity
        contact = self._contacts.get(header.sender)
        if header.run != me.run or contact is None:
            raise PeerError("unknown run or sender")
        mine = next((d for d in header.to if d.party == me.party), None)
        if mine is None:
            raise PeerError("not addressed to this party")
        may_send, may_receive = ROUTES.get(header.kind, (frozenset(), frozenset()))
        if contact.role not in may_send or me.role not in may_receive:
            raise PeerError(f"a {contact.role} party may not send {header.kind} here")
        verify(contact.verify_key, frames_digest(frames), frames[1])
        self._check_seen(header.sender, mine)
        is_news = self._outbox[header.sender].acknowledge(mine.ack)
        if mine.sequence == 0:
            if header.kind != "ack":
                raise PeerError("an envelope without a sequence number")
            if is_news:
                self._bare_acks[header.sender] = frames
            return
        self._check_limits(header.sender)
        self._owed.add(header.sender)
        is_new = self._inbox[header.sender].offer(mine.sequence, (header, frames), _size(frames))
        # A hello comes again on every connection; any other copy is a resend or a replay.
        if not is_new and header.kind not in GREETINGS and self._copies_noted < COPIES_NOTED_MAX:
            self._copies_noted += 1
            raise PeerError(f"a copy of envelope {mine.sequence} of {header.sender}")

    def _check_seen(self, sender: PartyId, mine: Delivery) -> None:
        """A peer that says it saw another envelope than it was sent would discredit this journal.

        Its answers are in order, so they never name an older envelope than one before.
        """
        outbox = self._outbox[sender]
        is_copy = 0 < mine.sequence <= self._inbox[sender].received
        is_stale = mine.ack < outbox.confirmed
        if is_copy or (is_stale and mine.sequence == 0):
            return
        if is_stale or not outbox.is_seen(mine.ack, mine.seen):
            raise PeerError(f"{sender} acknowledges another envelope {mine.ack} than it was sent")

    def bare_acks(self) -> tuple[Frames, ...]:
        """The newest acknowledgement of each peer that no envelope has carried, to be recorded."""
        news = tuple(frames for _, frames in sorted(self._bare_acks.items()))
        self._bare_acks.clear()
        return news

    def recall_ack(self, frames: Frames) -> None:
        """Take a recorded acknowledgement in again."""
        header = decode_header(frames)
        mine = next(d for d in header.to if d.party == self._identity.party)
        self._outbox[header.sender].acknowledge(mine.ack)

    def _check_limits(self, sender: PartyId) -> None:
        """A peer that only sends, or sends what is refused, is not heard any further."""
        waiting = self._outbox[sender].waiting_bytes
        if waiting > UNACKNOWLEDGED_BYTES_MAX:
            raise PeerError(f"{sender} has not acknowledged {waiting} bytes that were sent to it")
        if self._refused_bytes[sender] > REFUSED_BYTES_MAX:
            raise PeerError(f"{self._refused_bytes[sender]} bytes of {sender} were refused by now")

    def note_refused(self, frames: Frames) -> None:
        """An envelope is in the journal for nothing: count its bytes against its sender."""
        self._refused_bytes[decode_header(frames).sender] += _size(frames)

    @property
    def has_arrived(self) -> bool:
        """Whether something is next in some stream."""
        return any(inbox.received + 1 in inbox.early for inbox in self._inbox.values())

    def arrived(self) -> Iterator[tuple[Header, Frames, bytes]]:
        """What is next in any stream, with its digest; party by party, each in its own order."""
        for party in sorted(self._inbox):
            while (item := self._inbox[party].next()) is not None:
                header, frames = item
                yield header, frames, self._saw(header, frames)

    def recall(self, frames: Frames) -> tuple[Header, bytes]:
        """Take a recorded envelope in again, as `arrived` gave it."""
        header = decode_header(frames)
        self._inbox[header.sender].received += 1
        self._owed.discard(header.sender)
        mine = next(d for d in header.to if d.party == self._identity.party)
        self._outbox[header.sender].acknowledge(mine.ack)
        return header, self._saw(header, frames)

    def _saw(self, header: Header, frames: Frames) -> bytes:
        digest = frames_digest(frames)
        self._seen[header.sender] = digest
        mine = next(d for d in header.to if d.party == self._identity.party)
        self._outbox[header.sender].confirm(mine.ack)
        self._bare_acks.pop(header.sender, None)  # this envelope says at least as much
        return digest

    # -- snapshots ----------------------------------------------------------------------------

    def marks(self) -> tuple[StreamMark, ...] | None:
        """How far every stream has come; None while a peer answers nothing at all."""
        if any(len(outbox.digests) > DIGESTS_MAX for outbox in self._outbox.values()):
            return None
        return tuple(
            StreamMark(
                party=party,
                received=self._inbox[party].received,
                seen=self._seen[party],
                sent=outbox.sent,
                acknowledged=outbox.acknowledged,
                confirmed=outbox.confirmed,
                digests=tuple(digest for _, digest in sorted(outbox.digests.items())),
            )
            for party, outbox in self._outbox.items()
        )

    def restore(
        self, marks: Sequence[StreamMark], waiting: Sequence[Frames], greeting: Frames | None
    ) -> None:
        """Go on from there; `waiting` is what was not acknowledged."""
        for mark in marks:
            self._inbox[mark.party].received = mark.received
            self._seen[mark.party] = mark.seen
            outbox = self._outbox[mark.party]
            outbox.sent, outbox.acknowledged = mark.sent, mark.acknowledged
            outbox.confirmed = mark.confirmed
            first = mark.sent - len(mark.digests) + 1
            outbox.digests = dict(enumerate(mark.digests, start=first))
        for frames in waiting:
            for delivery in decode_header(frames).to:
                self._outbox[delivery.party].keep(delivery.sequence, frames, _size(frames))
        self.greeting = greeting


def _size(frames: Frames) -> int:
    return sum(map(len, frames))
