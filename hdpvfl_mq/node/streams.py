"""The streams of a node: for every peer, what has arrived and what it has not acknowledged.

It owns the positions of all streams, whose envelopes wait, and the marks of a snapshot. It knows no
signature, no message and no role; envelopes are written and opened in mailbox.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from hdpvfl_mq.node.allowance import Allowance
from hdpvfl_mq.node.ports import Contact
from hdpvfl_mq.wire.codec import Frames, decode_header
from hdpvfl_mq.wire.sequence import Busy, Inbox, Outbox, Position
from schemas.envelope import NO_PARENT, Delivery, Header
from schemas.ids import PartyId
from schemas.snapshot import DIGESTS_MAX, StreamMark


@dataclass(frozen=True, slots=True)
class Opened:
    """An envelope that has been verified: its frames, and what they say."""

    header: Header
    mine: Delivery  # this party's
    frames: Frames
    digest: bytes


class Streams:
    """The streams between one node and its peers."""

    def __init__(self, contacts: Mapping[PartyId, Contact]) -> None:
        self._contacts = dict(contacts)
        self._busy = busy = Busy()
        self._inbox: dict[PartyId, Inbox[Opened]] = {p: Inbox(p, busy) for p in contacts}
        self._outbox: dict[PartyId, Outbox[Frames]] = {p: Outbox(p, busy) for p in contacts}
        self._seen: dict[PartyId, bytes] = dict.fromkeys(contacts, NO_PARENT)
        self._epochs: dict[PartyId, int] = {}  # of the last envelope of each peer
        self._left: set[PartyId] = set()  # peers that have ended the run, or their part in it
        for outbox in self._outbox.values():
            outbox.digests[0] = NO_PARENT  # for a peer that has seen nothing yet
        self._bare_acks: dict[PartyId, Frames] = {}
        self._owed: set[PartyId] = set()
        self.allowance = Allowance()
        self._false: set[PartyId] = set()  # peers that signed what is false
        self._given_up: set[PartyId] = set()  # peers for whose answers nobody waits any more
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
        """Drop a peer and its streams: the next peer of that name starts with number 1.

        `size` is that of the journal now.
        """
        self._anew[party] = size
        if party in self._inbox:
            self._busy.early_bytes -= self._inbox[party].early_bytes
        for known in (self._contacts, self._inbox, self._outbox, self._seen, self._bare_acks):
            known.pop(party, None)
        self.allowance.forget(party)
        self._epochs.pop(party, None)
        for named in (self._busy.arrived, self._busy.waiting, self._owed, self._false):
            named.discard(party)
        for set_aside in (self._left, self._given_up):
            set_aside.discard(party)
        self._early_from.discard(party)
        self._lacking.discard(party)

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

    def next_envelope(self, party: PartyId) -> Opened | None:
        """The next envelope of a stream, if it has arrived."""
        inbox = self._inbox[party]
        found = inbox.early.get(inbox.received + 1)
        return None if found is None else found[0]

    def _is_epoch_in_order(self, sender: PartyId, sequence: int, epoch: int) -> bool:
        """Whether an envelope's epoch fits between those of the stream before and after it."""
        early = ((n, each.header.epoch) for n, (each, _) in self._inbox[sender].early.items())
        return epoch >= self._epochs.get(sender, 0) and all(
            other <= epoch if number < sequence else other >= epoch for number, other in early
        )

    # -- what peers have not acknowledged -----------------------------------------------------

    def owe_all(self) -> None:
        """Acknowledge again to every peer what is recorded of it.

        After a connection was lost this says what did not arrive over it. Once parties write to
        each other, also acknowledge (number 0) to peers that have sent nothing: their first
        envelope may be lost.
        """
        heard = {party for party, inbox in self._inbox.items() if inbox.received}
        is_all = any(self._contacts[party].role != "coordinator" for party in heard)
        self._owed.update(self._inbox if is_all else heard)

    def owe(self, party: PartyId) -> None:
        """Acknowledge again to a peer what is recorded of it: the next envelope is missing."""
        if party in self._inbox:
            self._owed.add(party)

    def take_lacking(self) -> tuple[PartyId, ...]:
        """Peers that have acknowledged the same again, and less than was sent to them."""
        lacking = tuple(sorted(self._lacking & self._busy.waiting))
        self._lacking.clear()
        return lacking

    @property
    def owes(self) -> bool:
        """Whether a peer waits for an acknowledgement that no envelope has carried yet."""
        return bool(self._owed)

    def waiting_envelope(self, party: PartyId, sequence: int) -> Frames | None:
        """An envelope that a peer has not acknowledged yet."""
        found = self._outbox[party].waiting.get(sequence)
        return None if found is None else found[0]

    def unacknowledged(self, first: int | None = None) -> tuple[Frames, ...]:
        """Stored envelopes that some peer has not acknowledged, to be sent again unchanged.

        At most `first` for each peer, because a peer refuses more than EARLY_MAX at once.
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
        """The first envelopes that some peers have not acknowledged.

        `wanted` says how many of each. An envelope with several receivers appears once.
        """
        waiting = (frames for each in wanted for frames in self.unacknowledged_by(*each))
        return tuple({id(frames): frames for frames in waiting}.values())

    @property
    def peer_count(self) -> int:
        """The number of peers."""
        return len(self._contacts)

    def strangers(self, frames: Frames) -> tuple[PartyId, ...]:
        """Receivers of a stored envelope that now have the name of a forgotten peer.

        The number in it is not of their stream, and they would take it for one of theirs.
        """
        if not self._anew:
            return ()
        header = decode_header(frames)
        return tuple(d.party for d in header.to if header.size < self._anew.get(d.party, 0))

    @property
    def waiting_peers(self) -> tuple[PartyId, ...]:
        """Peers that have not acknowledged an envelope that was sent to them."""
        return tuple(sorted(self._busy.waiting))

    def position(self, party: PartyId) -> Position:
        """How far the stream to a peer is."""
        return self._outbox[party].position

    def received_from(self, party: PartyId) -> int:
        """The number of a peer's last envelope that was taken."""
        return self._inbox[party].received if party in self._inbox else 0

    @property
    def has_unacknowledged(self) -> bool:
        """Whether some peer has not acknowledged an envelope that was sent to it."""
        return bool(self._busy.waiting)

    @property
    def awaited_peers(self) -> tuple[PartyId, ...]:
        """Peers that may still acknowledge an envelope; one that signed what is false cannot.

        Its acknowledgements are refused, so at the end of a run nobody waits for them.
        """
        return tuple(sorted(self._busy.waiting - self._false - self._given_up))

    def give_up(self, party: PartyId) -> None:
        """Wait no longer for what a peer has not acknowledged."""
        self._given_up.add(party)

    @property
    def unacknowledged_count(self) -> int:
        """The number of deliveries that peers have not acknowledged."""
        return sum(len(self._outbox[party].waiting) for party in self._busy.waiting)

    @property
    def acknowledged(self) -> int:
        """The number of deliveries that peers have acknowledged; it rises when one got through."""
        return self._busy.acknowledged

    @property
    def is_ending(self) -> bool:
        """Whether a peer has ended the run, or its part in it."""
        return bool(self._left)

    # -- snapshots ----------------------------------------------------------------------------

    def marks(self) -> tuple[StreamMark, ...] | None:
        """The position of every stream; None if a peer leaves too many envelopes unconfirmed."""
        if any(len(outbox.digests) > DIGESTS_MAX for outbox in self._outbox.values()):
            return None
        return tuple(
            StreamMark(
                party=party,
                received=self._inbox[party].received,
                epoch=self._epochs.get(party, 0),
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
            self._seen[mark.party], self._epochs[mark.party] = mark.seen, mark.epoch
            outbox = self._outbox[mark.party]
            outbox.sent, outbox.acknowledged = mark.sent, mark.acknowledged
            outbox.confirmed = mark.confirmed
            first = mark.sent - len(mark.digests) + 1
            outbox.digests = dict(enumerate(mark.digests, start=first))
        for frames in waiting:
            for delivery in decode_header(frames).to:
                self._outbox[delivery.party].keep(delivery.sequence, frames, size_of(frames))
        self.greeting = greeting


def size_of(frames: Frames) -> int:
    """The bytes of an envelope."""
    return sum(map(len, frames))
