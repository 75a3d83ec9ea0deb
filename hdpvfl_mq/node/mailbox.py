"""A node's mailbox: a numbered, signed stream of envelopes to and from every peer.

It owns who may send what to whom, the order of a stream and what is not yet acknowledged; it knows
no role and no store. It is rebuilt by replaying the journal, or restored from a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hdpvfl_mq.errors import CheatingError, PeerError, WithheldError
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.wire.codec import Frames, decode_header, encode_body, encode_header
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from hdpvfl_mq.wire.sequence import UNACKNOWLEDGED_BYTES_MAX, Busy, Inbox, Outbox, Position
from hdpvfl_mq.wire.signing import envelope_digest, frames_digest, sign, verify
from hdpvfl_mq.wire.versions import check_version
from schemas.envelope import NO_PARENT, Delivery, Header
from schemas.ids import PartyId
from schemas.messages import GREETINGS, ROUTES, UNNUMBERED, Ack, Message
from schemas.snapshot import DIGESTS_MAX, StreamMark

REFUSED_BYTES_MAX = 64 * 2**20  # refused bytes of one peer that a process writes to its journal
COPIES_NOTED_MAX = 1000  # copies one process records; a bad connection makes many
# Whether the role may have the next envelope of a stream: its header, sequence number, frames.
IsReady = Callable[[Header, int, Frames], bool]


@dataclass(frozen=True)
class Stamp:
    """What every envelope states about its sender's process and journal."""

    epoch: int
    head: bytes
    size: int
    root: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """An envelope that has been verified: its frames, and what they say."""

    header: Header
    mine: Delivery  # this party's
    frames: Frames
    digest: bytes


class Mailbox:
    """The streams of one node."""

    def __init__(self, identity: Identity, contacts: Mapping[PartyId, Contact]) -> None:
        self._identity, self._contacts = identity, dict(contacts)
        self._version = identity.versions[0]  # until `speak`
        self._busy = busy = Busy()
        self._inbox: dict[PartyId, Inbox[Opened]] = {p: Inbox(p, busy) for p in contacts}
        self._outbox: dict[PartyId, Outbox[Frames]] = {p: Outbox(p, busy) for p in contacts}
        self._seen: dict[PartyId, bytes] = dict.fromkeys(contacts, NO_PARENT)
        for outbox in self._outbox.values():
            outbox.digests[0] = NO_PARENT  # for a peer that has seen nothing yet
        self._bare_acks: dict[PartyId, Frames] = {}
        self._owed: set[PartyId] = set()
        self._copies_noted = 0
        self._refused_bytes: Counter[PartyId] = Counter()
        self._false: set[PartyId] = set()  # peers that signed what is false
        self._early_from: set[PartyId] = set()  # peers whose envelopes came out of order
        self._lacking: set[PartyId] = set()  # peers that have acknowledged the same again
        self._anew: dict[PartyId, int] = {}  # size of the journal when a name was forgotten
        self.greeting: Frames | None = None  # this process's hello, sent first on every connection

    def meet(self, party: PartyId, contact: Contact) -> None:
        """Accept a peer's envelopes from now on, with this key; an existing stream continues."""
        self._contacts[party] = contact
        self._inbox.setdefault(party, Inbox(party, self._busy))
        fresh: Outbox[Frames] = Outbox(party, self._busy, digests={0: NO_PARENT})
        self._outbox.setdefault(party, fresh)
        self._seen.setdefault(party, NO_PARENT)

    def forget(self, party: PartyId, size: int) -> None:
        """Drop a peer and its streams: whoever has its name next begins with number 1.

        `size` is that of the journal now.
        """
        self._anew[party] = size
        for known in (self._contacts, self._inbox, self._outbox, self._seen, self._bare_acks):
            known.pop(party, None)
        self._refused_bytes.pop(party, None)
        for named in (self._busy.arrived, self._busy.waiting, self._owed, self._false):
            named.discard(party)
        self._early_from.discard(party)
        self._lacking.discard(party)

    def speak(self, version: int) -> None:
        """Write later envelopes in this version, or in the newest that their receivers read."""
        self._version = version

    def sign_with(self, verify_key: bytes) -> None:
        """Sign later envelopes with another key of this node's identity."""
        key = self._identity.later_keys[verify_key]
        self._identity = replace(self._identity, signing_key=key)

    # -- out ----------------------------------------------------------------------------------

    def write(self, to: Sequence[PartyId], message: Message, parent: bytes, stamp: Stamp) -> Frames:
        """One envelope with the next number of each receiver, kept until all acknowledge it."""
        numbers = {party: self._outbox[party].number() for party in to}
        deliveries = tuple(self._delivery(party, number) for party, number in numbers.items())
        frames, digest = self._envelope(deliveries, message, parent, stamp)
        for party, number in numbers.items():
            self._outbox[party].digests[number] = digest
            self._outbox[party].keep(number, frames, _size(frames))
            self._owed.discard(party)
        if message.kind in GREETINGS:
            self.greeting = frames
        return frames

    def acknowledgement(self, stamp: Stamp, receivers_max: int) -> Frames | None:
        """An envelope that acknowledges what is recorded; None if no peer waits for that.

        Each receiver reads the whole header, so one for all of a crowd costs its cube in bytes.
        """
        if not self._owed:
            return None
        owed = sorted(self._owed)[:receivers_max]
        self._owed.difference_update(owed)
        to = tuple(self._delivery(party, 0) for party in owed)
        return self._envelope(to, Ack(), NO_PARENT, stamp)[0]

    def unnumbered(self, party: PartyId, message: Message, stamp: Stamp) -> Frames:
        """One envelope outside the stream to a peer; it is not kept."""
        return self._envelope((self._delivery(party, 0),), message, NO_PARENT, stamp)[0]

    def waiting_envelope(self, party: PartyId, sequence: int) -> Frames | None:
        """An envelope that a peer has not acknowledged yet."""
        found = self._outbox[party].waiting.get(sequence)
        return None if found is None else found[0]

    def owe_all(self) -> None:
        """Acknowledge again to every peer what is recorded of it.

        After a connection was lost this says what did not arrive over it.
        """
        self._owed.update(party for party, inbox in self._inbox.items() if inbox.received)

    def take_lacking(self) -> tuple[PartyId, ...]:
        """Peers that have acknowledged the same again, and less than was sent to them."""
        lacking = tuple(sorted(self._lacking & self._busy.waiting))
        self._lacking.clear()
        return lacking

    def strangers(self, frames: Frames) -> tuple[PartyId, ...]:
        """Receivers of a stored envelope who have their names from peers that were forgotten.

        The number in it is not of their stream, and they would take it for one of theirs.
        """
        if not self._anew:
            return ()
        header = decode_header(frames)
        return tuple(d.party for d in header.to if header.size < self._anew.get(d.party, 0))

    def unacknowledged(self, first: int | None = None) -> tuple[Frames, ...]:
        """Stored envelopes that some peer has not acknowledged, to be sent again unchanged.

        `first` limits them to so many of each peer: it refuses more than EARLY_MAX at once.
        """
        waiting: dict[int, Frames] = {}
        for party in sorted(self._busy.waiting):
            for frames, _ in islice(self._outbox[party].waiting.values(), first):
                waiting[id(frames)] = frames
        return tuple(waiting.values())

    def unacknowledged_by(self, party: PartyId, first: int) -> tuple[Frames, ...]:
        """The first envelopes that one peer has not acknowledged."""
        waiting = self._outbox[party].waiting.values() if party in self._outbox else ()
        return tuple(frames for frames, _ in islice(waiting, first))

    def unacknowledged_by_each(self, wanted: Sequence[tuple[PartyId, int]]) -> tuple[Frames, ...]:
        """The first envelopes that some peers have not acknowledged; one to several of them once.

        `wanted` says how many of each.
        """
        waiting = (frames for each in wanted for frames in self.unacknowledged_by(*each))
        return tuple({id(frames): frames for frames in waiting}.values())

    @property
    def peer_count(self) -> int:
        """The number of peers."""
        return len(self._contacts)

    @property
    def waiting_peers(self) -> tuple[PartyId, ...]:
        """Peers that have not acknowledged an envelope that was sent to them."""
        return tuple(sorted(self._busy.waiting))

    def position(self, party: PartyId) -> Position:
        """How far the stream to a peer is."""
        return self._outbox[party].position

    @property
    def owes(self) -> bool:
        """Whether a peer waits for an acknowledgement that no envelope has carried yet."""
        return bool(self._owed)

    @property
    def has_unacknowledged(self) -> bool:
        """Whether some peer has not acknowledged an envelope that was sent to it."""
        return bool(self._busy.waiting)

    @property
    def awaits_answers(self) -> bool:
        """Whether a peer may still acknowledge an envelope; one that signed what is false cannot.

        Its acknowledgements are refused, so at the end of a run nobody waits for them.
        """
        return any(box.waiting for party, box in self._outbox.items() if party not in self._false)

    @property
    def unacknowledged_count(self) -> int:
        """The number of deliveries that peers have not acknowledged."""
        return sum(len(self._outbox[party].waiting) for party in self._busy.waiting)

    @property
    def acknowledged(self) -> int:
        """The number of deliveries that peers have acknowledged; it rises when one got through."""
        return self._busy.acknowledged

    def _envelope(
        self, to: tuple[Delivery, ...], message: Message, parent: bytes, stamp: Stamp
    ) -> tuple[Frames, bytes]:
        """A signed envelope and its digest."""
        version = min(self._version, *(self._contacts[each.party].version for each in to))
        header = encode_header(
            Header(
                version=version,
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
        digest = envelope_digest(header, body, arrays)
        signature = sign(self._identity.signing_key, digest)
        return (header, signature, body, *arrays), digest

    def _delivery(self, party: PartyId, sequence: int) -> Delivery:
        ack, seen = self._inbox[party].received, self._seen[party]
        return Delivery(party=party, sequence=sequence, ack=ack, seen=seen)

    # -- in -----------------------------------------------------------------------------------

    def accept(self, frames: Frames) -> Header | None:
        """Verify an envelope and queue it in its stream; PeerError if it is not allowed.

        Returns the header of an envelope that belongs to the exchange of parts.
        """
        header, me = decode_header(frames), self._identity
        contact = self._contacts.get(header.sender)
        if header.run != me.run or contact is None:
            raise PeerError("unknown run or sender")
        check_version(header.version, me.versions)
        mine = self._mine(header)
        may_send, may_receive = ROUTES.get(header.kind, (frozenset(), frozenset()))
        if contact.role not in may_send or me.role not in may_receive:
            raise PeerError(f"a {contact.role} party may not send {header.kind} here")
        digest = frames_digest(frames)
        verify(contact.verify_key, digest, frames[1])
        self._check_seen(header.sender, mine)
        if mine.sequence == 0 and header.kind not in UNNUMBERED:
            raise PeerError("an envelope without a sequence number")
        if mine.sequence and header.kind in UNNUMBERED and header.kind != "ack":
            raise PeerError(f"a {header.kind} has no place in a stream")
        if mine.sequence == 0 and header.kind != "ack":
            return header
        is_news = self._outbox[header.sender].acknowledge(mine.ack)
        if mine.sequence == 0:
            if is_news:
                self._bare_acks[header.sender] = frames
            else:
                self._lacking.add(header.sender)
            return None
        self._check_limits(header.sender)
        if mine.sequence > self._inbox[header.sender].received + 1:
            self._early_from.add(header.sender)
        opened = Opened(header, mine, frames, digest)
        is_new = self._inbox[header.sender].offer(mine.sequence, opened, _size(frames))
        if not is_new:
            self._owed.add(header.sender)  # the sender may not know that this is recorded
        # A hello is sent on every connection, and an envelope in parts while they are on their way;
        # any other copy is a resend or a replay.
        is_noted = header.kind not in GREETINGS and not is_in_parts(frames)
        if not is_new and is_noted and self._copies_noted < COPIES_NOTED_MAX:
            self._copies_noted += 1
            raise PeerError(f"a copy of envelope {mine.sequence} of {header.sender}")
        return None

    def _mine(self, header: Header) -> Delivery:
        """This party's delivery in a header; PeerError if it is not a receiver."""
        me = self._identity.party
        for delivery in header.to:
            if delivery.party == me:
                return delivery
        raise PeerError("not addressed to this party")

    def _check_seen(self, sender: PartyId, mine: Delivery) -> None:
        """Refuse a false `seen`: recording it would make this party's journal look forged.

        A peer answers in order, so a later envelope never acknowledges less than an earlier one.
        """
        outbox = self._outbox[sender]
        is_copy = 0 < mine.sequence <= self._inbox[sender].received
        is_stale = mine.ack < outbox.confirmed
        if is_copy or (is_stale and mine.sequence == 0):
            return
        if is_stale or not outbox.is_seen(mine.ack, mine.seen):
            raise CheatingError(
                f"{sender} acknowledges another envelope {mine.ack} than it was sent"
            )

    def bare_acks(self) -> tuple[Frames, ...]:
        """Each peer's newest acknowledgement that came without an envelope, to be recorded."""
        news = tuple(frames for _, frames in sorted(self._bare_acks.items()))
        self._bare_acks.clear()
        return news

    def recall_ack(self, frames: Frames) -> None:
        """Replay a recorded acknowledgement."""
        header = decode_header(frames)
        self._outbox[header.sender].acknowledge(self._mine(header).ack)

    def _check_limits(self, sender: PartyId) -> None:
        """Refuse a peer that never acknowledges, or whose refused envelopes are too many."""
        waiting = self._outbox[sender].waiting_bytes
        if waiting > UNACKNOWLEDGED_BYTES_MAX:
            raise WithheldError(f"{sender} has not acknowledged {waiting} bytes sent to it")
        if self._refused_bytes[sender] > REFUSED_BYTES_MAX:
            raise CheatingError(
                f"{self._refused_bytes[sender]} bytes of {sender} were refused by now"
            )

    def note_false(self, party: PartyId) -> None:
        """Note that a peer signed something false."""
        self._false.add(party)

    def missing(self, party: PartyId) -> int | None:
        """The number of a peer's envelope that later ones wait for; None if none is missing."""
        return self._inbox[party].missing

    def take_early(self) -> tuple[PartyId, ...]:
        """Peers whose envelopes have come out of order since the last call."""
        early = tuple(sorted(self._early_from))
        self._early_from.clear()
        return early

    def note_refused(self, frames: Frames) -> None:
        """Count the bytes of a recorded but refused envelope against its sender."""
        size = PartList.of_frames(frames).sizes.bytes if is_in_parts(frames) else _size(frames)
        self._refused_bytes[decode_header(frames).sender] += size

    def forgive(self) -> None:
        """Count refused bytes anew: a limit that outlived restarts would end a stream for ever."""
        self._refused_bytes.clear()

    def has_arrived(self, is_ready: IsReady) -> bool:
        """Whether the next envelope of some stream has arrived and the role may have it."""
        return any(self._is_next_ready(party, is_ready) for party in self._busy.arrived)

    def stopped(self, is_early: Callable[[str], bool]) -> tuple[tuple[PartyId, int], ...]:
        """Streams whose next envelope has arrived and is of a kind that must wait; its number."""
        next_ones = ((party, self.next_envelope(party)) for party in sorted(self._busy.arrived))
        return tuple(
            (party, found.mine.sequence)
            for party, found in next_ones
            if found is not None and is_early(found.header.kind)
        )

    def next_envelope(self, party: PartyId) -> Opened | None:
        """The next envelope of a stream, if it has arrived."""
        inbox = self._inbox[party]
        found = inbox.early.get(inbox.received + 1)
        return None if found is None else found[0]

    def _is_next_ready(self, party: PartyId, is_ready: IsReady) -> bool:
        found = self.next_envelope(party)
        return found is not None and is_ready(found.header, found.mine.sequence, found.frames)

    def arrived(self, is_ready: IsReady) -> Iterator[tuple[Header, Frames, bytes]]:
        """The next envelopes of all streams, with their digests: party by party, each in order.

        A stream stops at an envelope that the role may not have yet.
        """
        for party in sorted(self._busy.arrived):
            inbox = self._inbox[party]
            while self._is_next_ready(party, is_ready):
                opened = inbox.next()
                assert opened is not None
                # Owed from now on, not from arrival: an answer to an earlier envelope must not
                # count for it.
                self._owed.add(party)
                self._saw(opened)
                yield opened.header, opened.frames, opened.digest

    def recall(self, frames: Frames) -> tuple[Header, bytes]:
        """Replay a recorded envelope, with the result that `arrived` gave."""
        header = decode_header(frames)
        self._inbox[header.sender].received += 1
        self._owed.discard(header.sender)
        opened = Opened(header, self._mine(header), frames, frames_digest(frames))
        self._outbox[header.sender].acknowledge(opened.mine.ack)
        self._saw(opened)
        return header, opened.digest

    def _saw(self, opened: Opened) -> None:
        sender = opened.header.sender
        self._seen[sender] = opened.digest
        self._outbox[sender].confirm(opened.mine.ack)
        self._bare_acks.pop(sender, None)  # this envelope acknowledges at least as much

    # -- snapshots ----------------------------------------------------------------------------

    def marks(self) -> tuple[StreamMark, ...] | None:
        """The position of every stream; None if a peer leaves too many envelopes unconfirmed."""
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
        """Continue from these positions; `waiting` are the envelopes not yet acknowledged."""
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
