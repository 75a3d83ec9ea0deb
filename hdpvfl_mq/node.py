"""One process without its sockets: machine + journal + sequences. Frames in, frames out.

It owns the order of things: verify, put in order, step, book, commit, and only then hand out what
is to be sent. It knows no socket and no clock. Recovery and replay are the same code: `open` feeds
the journal's inputs through the role again and demands the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.machine import (
    Arm,
    CheckLedger,
    Effect,
    Finish,
    Fired,
    Input,
    LedgerRead,
    Ordered,
    ReadLedger,
    Received,
    RememberHead,
    Reserve,
    Role,
    Send,
    Started,
)
from hdpvfl_mq.pending import Pending, event_input, ledger_effect, plain_input
from hdpvfl_mq.ports import Book, Contact, Identity, RecordStore, Turn
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header, encode_body, encode_header
from hdpvfl_mq.wire.sequence import Inbox, Outbox
from hdpvfl_mq.wire.signing import envelope_digest, sign, verify
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION, Delivery, Header
from schemas.ids import PartyId
from schemas.messages import ROUTES, Ack, Message
from schemas.privacy import LedgerHead, Release
from schemas.records import (
    GENESIS,
    ArmedEffect,
    EnvelopeInput,
    FinishedEffect,
    LedgerInput,
    LedgerStanding,
    RefusedEffect,
    ReservedEffect,
    SentEffect,
    StartedInput,
    StepEffect,
    StepInput,
    StepRecord,
)

NO_LEDGER = LedgerStanding(head=LedgerHead(sequence=0, digest=GENESIS), mu2_units_free=0)

COPIES_NOTED_MAX = 1000  # copies one process records; a bad link makes many


class Node:
    """A role with a memory and a voice."""

    def __init__(
        self,
        role: Role,
        identity: Identity,
        contacts: Mapping[PartyId, Contact],
        *,
        journal: RecordStore,
        book: Book | None = None,
    ) -> None:
        self.role = role
        self.identity = identity
        self.state: Any = role.initial()
        self.outcome: str | None = None
        self.head = GENESIS
        self.epoch = 0
        self.steps = 0
        self._contacts = contacts
        self._journal = journal
        self._book = book
        self._inbox: dict[PartyId, Inbox[tuple[Header, Frames]]] = {p: Inbox() for p in contacts}
        self._outbox: dict[PartyId, Outbox[Frames]] = {p: Outbox() for p in contacts}
        self._seen: dict[PartyId, bytes] = dict.fromkeys(contacts, NO_PARENT)
        self._tree = Tree()
        self._owed: set[PartyId] = set()
        self._armed: dict[str, Arm] = {}
        self._greeting: Frames | None = None
        self._copies_noted = 0
        self._is_ledger_due = False
        self._pending = Pending()

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> int:
        """Fold what the journal holds, demanding the same bytes; returns the number of steps."""
        for record, stored in chain.walk(self._journal.records()):
            self.refold(record, stored)
        for party, sequence in self._journal.acks().items():
            self._outbox[party].acknowledge(sequence)
        self._pending = Pending()
        return self.steps

    def refold(self, record: StepRecord, stored: bytes) -> None:
        """One recorded step again; IntegrityError when it does not come out as recorded."""
        given, parent = self._recorded_input(record.input)
        self._step(given, record.input, parent)
        if self._pending.records[-1][1] != stored:
            raise chain.DivergenceError(record.index, stored, self._pending.records[-1][1])
        self._pending = Pending()

    def start(self) -> Turn:
        """Announce this process; to be called once, after `open`."""
        standing = self._book.standing() if self._book else NO_LEDGER
        started = StartedInput(epoch=self.epoch + 1, standing=standing)
        self._pending.arm.extend(self._armed.values())  # armed before a crash, still to run out
        self._step(Started(self.epoch + 1, standing), started, NO_PARENT)
        return self._commit()

    def turn(self, arrivals: Sequence[Frames], events: Sequence[Fired | Ordered] = ()) -> Turn:
        """Take in everything that has arrived, step, commit; then the caller may send."""
        for frames in arrivals:
            try:
                self._accept(frames)
            except PeerError as refused:
                self.refuse(frames, str(refused))
        for event in events:
            self._step(event, event_input(event), NO_PARENT)
        for party in sorted(self._inbox):
            while (item := self._inbox[party].next()) is not None:
                self._deliver(party, *item)
        return self._commit()

    def refuse(self, frames: Frames, reason: str) -> None:
        """Record frames that were turned away at the door, with the next commit."""
        digest = hashlib.sha256(b"".join(frames[:4])).digest()
        self._pending.refusals.append((reason[:500], digest))

    @property
    def has_refusals(self) -> bool:
        """Whether refused frames wait for a commit."""
        return bool(self._pending.refusals)

    # -- speech -------------------------------------------------------------------------------

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

    @property
    def greeting(self) -> Frames | None:
        """The hello of this process, to be sent first on every new connection."""
        return self._greeting

    def unacknowledged(self) -> tuple[Frames, ...]:
        """Stored envelopes some peer has not recorded yet, to be sent again as they are."""
        waiting: dict[int, Frames] = {}
        for outbox in self._outbox.values():
            for frames in outbox.waiting.values():
                waiting[id(frames)] = frames
        return tuple(waiting.values())

    def acknowledgement(self) -> Frames | None:
        """One envelope that says what has been recorded, if anybody is owed that."""
        if not self._owed:
            return None
        to = tuple(self._delivery(party, 0) for party in sorted(self._owed))
        self._owed.clear()
        return self._envelope(to, Ack(), NO_PARENT)

    def _envelope(self, to: tuple[Delivery, ...], message: Message, parent: bytes) -> Frames:
        header = encode_header(
            Header(
                version=PROTOCOL_VERSION,
                run=self.identity.run,
                sender=self.identity.party,
                epoch=max(self.epoch, 1),
                kind=message.kind,
                to=to,
                parent=parent,
                head=self.head,
                size=self._tree.size,
                root=self._tree.root(),
            )
        )
        body, arrays = encode_body(message)
        signature = sign(self.identity.signing_key, envelope_digest(header, body, arrays))
        return (header, signature, body, *arrays)

    def _delivery(self, party: PartyId, sequence: int) -> Delivery:
        ack, seen = self._inbox[party].received, self._seen[party]
        return Delivery(party=party, sequence=sequence, ack=ack, seen=seen)

    # -- arrivals -----------------------------------------------------------------------------

    def _accept(self, frames: Frames) -> None:
        header = decode_header(frames)
        contact = self._contacts.get(header.sender)
        if header.run != self.identity.run or contact is None:
            raise PeerError("unknown run or sender")
        mine = next((d for d in header.to if d.party == self.identity.party), None)
        if mine is None:
            raise PeerError("not addressed to this party")
        may_send, may_receive = ROUTES.get(header.kind, (frozenset(), frozenset()))
        if contact.role not in may_send or self.identity.role not in may_receive:
            raise PeerError(f"a {contact.role} party may not send {header.kind} here")
        verify(contact.verify_key, envelope_digest(frames[0], frames[2], frames[3:]), frames[1])
        self._outbox[header.sender].acknowledge(mine.ack)
        if mine.sequence == 0:
            if header.kind != "ack":
                raise PeerError("an envelope without a sequence number")
            return
        self._owed.add(header.sender)
        is_new = self._inbox[header.sender].offer(mine.sequence, (header, frames))
        # A hello comes again on every connection; any other copy is a resend or a replay.
        if not is_new and header.kind != "hello" and self._copies_noted < COPIES_NOTED_MAX:
            self._copies_noted += 1
            raise PeerError(f"a copy of envelope {mine.sequence} of {header.sender}")

    def _deliver(self, party: PartyId, header: Header, frames: Frames) -> None:
        recorded = EnvelopeInput(frames=frames)
        parent = self._seen[party] = envelope_digest(frames[0], frames[2], frames[3:])
        try:
            given: Input | PeerError = Received(party, decode_body(header, frames))
        except PeerError as refused:
            given = refused
        self._step(given, recorded, parent)

    def _recorded_input(self, recorded: StepInput) -> tuple[Input | PeerError, bytes]:
        match recorded:
            case EnvelopeInput(frames=frames):
                header = decode_header(frames)
                inbox = self._inbox[header.sender]
                inbox.received += 1
                self._owed.discard(header.sender)
                parent = envelope_digest(frames[0], frames[2], frames[3:])
                self._seen[header.sender] = parent
                try:
                    return Received(header.sender, decode_body(header, frames)), parent
                except PeerError as refused:
                    return refused, parent
            case _:
                return plain_input(recorded), NO_PARENT

    # -- steps --------------------------------------------------------------------------------

    def _step(self, given: Input | PeerError, recorded: StepInput, parent: bytes) -> None:
        if isinstance(given, Started):
            self.epoch = given.epoch
        if isinstance(given, Fired):
            self._armed.pop(given.timer, None)
        if isinstance(given, LedgerRead):
            self._is_ledger_due = False
        try:
            if isinstance(given, PeerError):
                raise given
            self.state, effects = self.role.step(self.state, given)
            stored: tuple[StepEffect, ...] = tuple(self._perform(e, parent) for e in effects)
        except PeerError as refused:
            stored = (RefusedEffect(reason=str(refused)[:500]),)
        record = chain.encode(
            StepRecord(index=self.steps, previous=self.head, input=recorded, effects=stored)
        )
        self.head = chain.link(record)
        self._tree.append(self.head)
        self._pending.records.append((self.steps, record, self.head))
        self.steps += 1

    def _perform(self, effect: Effect, parent: bytes) -> StepEffect:
        match effect:
            case Send(to=to, message=message):
                numbers = {party: self._outbox[party].number() for party in to}
                deliveries = tuple(self._delivery(p, n) for p, n in numbers.items())
                frames = self._envelope(deliveries, message, parent)
                for party, number in numbers.items():
                    self._outbox[party].keep(number, frames)
                    self._owed.discard(party)
                release = getattr(message, "release", None)
                if isinstance(release, Release):
                    self._pending.releases.append(release)
                if message.kind == "hello":
                    self._greeting = frames
                self._pending.send.append(frames)
                return SentEffect(frames=frames)
            case Arm(timer=timer, delay_s=delay_s):
                self._pending.arm.append(effect)
                self._armed[timer] = effect
                return ArmedEffect(name=timer, delay_ms=round(delay_s * 1000))
            case Reserve(mu2_units=mu2_units, tau_units=tau_units):
                self._pending.reservations.append(effect)
                return ReservedEffect(mu2_units=mu2_units, tau_units=tau_units)
            case ReadLedger() | RememberHead() | CheckLedger():
                self._pending.ledger_orders.append(effect)
                # Kept until it is done: a crash may come between the two steps.
                self._is_ledger_due |= isinstance(effect, ReadLedger)
                return ledger_effect(effect)
            case Finish(outcome=outcome):
                self.outcome = outcome
                return FinishedEffect(outcome=outcome)

    def _commit(self) -> Turn:
        """Put the turn on disk; if a step asked for the ledger, take that step too."""
        done, self._pending = self._pending, Pending()
        acks = {party: box.acknowledged for party, box in self._outbox.items()}
        done.commit(self._book, self._journal, acks)
        turn = Turn(tuple(done.send), tuple(done.arm), self.outcome)
        if not self._is_ledger_due or self._book is None:
            return turn
        standing = self._book.standing()
        self._step(LedgerRead(standing), LedgerInput(standing=standing), NO_PARENT)
        more = self._commit()
        return Turn((*turn.send, *more.send), (*turn.arm, *more.arm), more.outcome)
