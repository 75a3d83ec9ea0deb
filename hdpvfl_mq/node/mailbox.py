"""A node's mailbox: a numbered, signed stream of envelopes to and from every peer.

It owns who may send what to whom, and writing and opening envelopes; streams.py owns the order of a
stream and what is not yet acknowledged. It knows no role and no store. It is rebuilt by replaying
the journal, or restored from a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hdpvfl_mq.errors import CheatingError, PeerError, WithheldError
from hdpvfl_mq.machine import Received
from hdpvfl_mq.node.envelope_form import check_form
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.node.streams import Opened, Streams, size_of
from hdpvfl_mq.wire.codec import Frames, decode_header, encode_body, encode_header
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from hdpvfl_mq.wire.sequence import UNACKNOWLEDGED_BYTES_MAX
from hdpvfl_mq.wire.signing import envelope_digest, frames_digest, sign, verify
from hdpvfl_mq.wire.versions import check_version
from schemas.delivery import Ack
from schemas.envelope import NO_PARENT, Delivery, Header
from schemas.ids import PartyId
from schemas.messages import GREETINGS, LAST_WORDS, ROUTES, Message

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


class Mailbox(Streams):
    """The envelopes of one node: written, signed, verified, put in order."""

    def __init__(self, identity: Identity, contacts: Mapping[PartyId, Contact]) -> None:
        super().__init__(contacts)
        self._identity = identity
        self._version = identity.versions[0]  # until `speak`
        self._copies_noted = 0

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
            self._outbox[party].keep(number, frames, size_of(frames))
            self._owed.discard(party)
        if message.kind in GREETINGS:
            self.greeting = frames
        return frames

    def acknowledgement(self, stamp: Stamp, receivers_max: int) -> Frames | None:
        """An envelope that acknowledges what is recorded; None if no peer waits for that.

        Each receiver reads the whole header: with n receivers in one header the bytes of a round
        grow as n cubed.
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
        opened = self._verified(frames)
        header, mine = opened.header, opened.mine
        if mine.sequence:
            self._check_process(header, mine.sequence)
        elif header.kind != "ack":
            return header
        is_news = self._outbox[header.sender].acknowledge(mine.ack)
        if mine.sequence:
            self._queue(opened)
        elif is_news:
            self._bare_acks[header.sender] = frames
        else:
            self._lacking.add(header.sender)
        return None

    def _verified(self, frames: Frames) -> Opened:
        """Open an envelope that its signer may send to this party now; else PeerError."""
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
        check_form(header, mine, frames, self._contacts)
        return Opened(header, mine, frames, digest)

    def _queue(self, opened: Opened) -> None:
        """Put an envelope in its stream; PeerError for a copy that is worth a note."""
        header, number, frames = opened.header, opened.mine.sequence, opened.frames
        self._check_limits(header.sender)
        if number > self._inbox[header.sender].received + 1:
            self._early_from.add(header.sender)
        if self._inbox[header.sender].offer(number, opened, size_of(frames)):
            return
        self._owed.add(header.sender)  # the sender may not know that this is recorded
        # A hello is sent on every connection, and an envelope in parts while they are on their way;
        # any other copy is a resend or a replay.
        is_noted = header.kind not in GREETINGS and not is_in_parts(frames)
        if is_noted and self._copies_noted < COPIES_NOTED_MAX:
            self._copies_noted += 1
            raise PeerError(f"a copy of envelope {number} of {header.sender}")

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
                f"{sender} acknowledges an envelope {mine.ack} that is not the one it was sent"
            )

    def _check_process(self, header: Header, sequence: int) -> None:
        """Refuse an envelope that no process with this peer's whole journal can have written.

        A party that has lost its journal, or has got an older copy back, uses numbers again. That
        looks like copies, and nobody would hear that it leaves.
        """
        sender = header.sender
        if sequence <= self._inbox[sender].received:
            if header.kind in LAST_WORDS and sender not in self._left:
                raise CheatingError(
                    f"{sender} ends the run under number {sequence}, which it has used: its "
                    "journal is lost or not the newest, or it lies"
                )
        elif not self._is_epoch_in_order(sender, sequence, header.epoch):
            raise CheatingError(f"{sender} sent this from an earlier process (its epoch fell)")

    def bare_acks(self) -> tuple[Frames, ...]:
        """Each peer's newest acknowledgement that came without an envelope, to be recorded."""
        news = tuple(frames for _, frames in sorted(self._bare_acks.items()))
        self._bare_acks.clear()
        return news

    def recall_ack(self, frames: Frames) -> None:
        """Replay a recorded acknowledgement."""
        header = decode_header(frames)
        self._outbox[header.sender].acknowledge(self._mine(header).ack)

    def owes_much(self, party: PartyId) -> bool:
        """Whether a peer has not acknowledged so much that nothing more is accepted from it."""
        return self._outbox[party].waiting_bytes > UNACKNOWLEDGED_BYTES_MAX

    def _check_limits(self, sender: PartyId) -> None:
        """Refuse a peer that never acknowledges, or that has sent too much in vain."""
        if self.owes_much(sender):
            waiting = self._outbox[sender].waiting_bytes
            raise WithheldError(f"{sender} has not acknowledged {waiting} bytes sent to it")
        self.allowance.check(sender)

    def note_refused(self, frames: Frames) -> None:
        """Count the bytes of a recorded but refused envelope against its sender."""
        self.allowance.note(decode_header(frames).sender, _whole_size(frames))

    def note_taken(self, given: Received[Any], frames: Frames, *, is_moved: bool) -> None:
        """Count the bytes of an envelope that the role took, if nothing else limits them."""
        size = _whole_size(frames)
        self.allowance.note_taken(given.sender, given.message, size, is_moved=is_moved)

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
        self._seen[sender], self._epochs[sender] = opened.digest, opened.header.epoch
        if opened.header.kind in LAST_WORDS:
            self._left.add(sender)
        self._outbox[sender].confirm(opened.mine.ack)
        self._bare_acks.pop(sender, None)  # this envelope acknowledges at least as much


def _whole_size(frames: Frames) -> int:
    """The bytes that an envelope makes its receiver store, with the parts that it lists."""
    listed = PartList.of_frames(frames).sizes.bytes if is_in_parts(frames) else 0
    return size_of(frames) + listed
