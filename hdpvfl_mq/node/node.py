"""One process without its sockets: machine + journal + sequences. Frames in, frames out.

It owns the order of a turn: verify, put in order, step, book, commit, and only then hand out what
is to be sent. It knows no socket and no clock. Recovery and replay are the same code: `open` feeds
the recorded inputs to the role again and demands the same bytes, from a snapshot if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hdpvfl_mq.errors import CheatingError, PeerError, WithheldError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import Input, Offence, OffenceCause, Received, Role
from hdpvfl_mq.node.exchanging import Exchanging
from hdpvfl_mq.node.performing import RECEIVERS_MAX, spread
from hdpvfl_mq.node.ports import Contact, Identity, LedgerPort, RecordStore, Turn
from hdpvfl_mq.node.uncommitted import Uncommitted, WriteBoth, one_by_one
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from hdpvfl_mq.wire.parts import is_in_parts
from schemas.commands import OperatorCommand
from schemas.envelope import NO_PARENT, Header
from schemas.ids import PartyId
from schemas.messages import NEEDED, Numbers
from schemas.privacy import LedgerHead, Release
from schemas.records import (
    GENESIS,
    Acknowledged,
    Charged,
    EnvelopeReceived,
    LedgerRead,
    LedgerStanding,
    Noted,
    OperatorRequest,
    RecordedEffect,
    RecordedInput,
    Refused,
    Started,
    StepRecord,
    TimerFired,
    TurnedAway,
    Withheld,
)

Event = TimerFired | OperatorRequest | OperatorCommand
Moved = Started | LedgerRead | Charged | Event
NO_LEDGER = LedgerStanding(head=LedgerHead(sequence=0, digest=GENESIS), mu2_units_free=0)


class Node(Exchanging):
    """A role with its journal and its mailbox."""

    def __init__(
        self,
        role: Role,
        identity: Identity,
        contacts: Mapping[PartyId, Contact],
        *,
        journal: RecordStore,
        ledger: LedgerPort | None = None,
        both: WriteBoth = one_by_one,
    ) -> None:
        """`both` makes the ledger's and the journal's part of a turn durable."""
        super().__init__(identity, contacts, journal)
        self.role = role
        self.state: Any = role.initial()
        self.ledger, self._both = ledger, both

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> int:
        """Replay the journal, demanding the same bytes; returns the number of steps.

        The last turn may be in the journal and not in the ledger. Its releases are booked and its
        queries of scores counted here, before anything is sent again.
        """
        for record, stored in chain.walk(self._journal.records(self.steps), self.steps, self.head):
            releases = self.refold(record, stored)
            if self.ledger is not None:
                self.ledger.book_again(releases)
                self.ledger.charge_again(record)
        self._uncommitted = Uncommitted()
        self.mailbox.allowance.forgive()
        return self.steps

    def refold(self, record: StepRecord, stored: bytes) -> list[Release]:
        """Replay one recorded step; IntegrityError if the result differs from the record.

        Returns what the step released.
        """
        if isinstance(record.input, Acknowledged | TurnedAway | Withheld):
            self._note_again(record.input)
        else:
            given, parent = self._recorded_input(record.input)
            self._step(given, record.input, parent)
        if self._uncommitted.records[-1][1] != stored:
            raise chain.DivergenceError(record.index, stored, self._uncommitted.records[-1][1])
        done, self._uncommitted = self._uncommitted, Uncommitted()
        return done.releases

    def start(self) -> Turn:
        """Announce this process; call it once, after `open`."""
        standing = self.ledger.standing() if self.ledger else NO_LEDGER
        started = Started(epoch=self.epoch + 1, standing=standing, speaks=self.identity.versions[1])
        self._uncommitted.arm.extend(self.armed.values())  # armed before a crash and not fired yet
        self._step(started, started, NO_PARENT)
        return self._commit()

    def turn(self, arrivals: Sequence[Frames], events: Sequence[Event] = ()) -> Turn:
        """Take in everything that has arrived, step, commit; only then may the caller send."""
        for frames in arrivals:
            try:
                self._take(frames)
            except CheatingError as false:
                sender = decode_header(frames).sender
                self.mailbox.note_false(sender)
                self.refuse(frames, str(false), by=sender)
            except WithheldError as missing:
                sender = decode_header(frames).sender
                if sender not in dict(self._stopped()):  # else it is this node that keeps it
                    self._note_withheld(sender, str(missing))
            except PeerError as refused:
                self.refuse(frames, str(refused))
        parts_taken = self.parts.store()
        is_due = events or self.refusals.waiting or self.mailbox.has_arrived(self._is_ready)
        if is_due or self.outcome is not None:
            for frames in self.mailbox.bare_acks():  # recorded only in a turn that commits anyway
                self._append(Acknowledged(frames=frames), ())
        for note in self.refusals.take():
            self._append(note, self._answered(note))
        # A timer ends a wait for peers: what they have sent comes before it.
        for is_timer in (False, True):
            for event in events:
                if isinstance(event, TimerFired) == is_timer and not self._is_settled(event):
                    self._step(event, event, NO_PARENT)
            self._step_arrived()
        # Parts and requests for them travel in envelopes, which acknowledge what was received.
        self._uncommitted.is_due |= self.parts.is_busy or parts_taken > 0
        turn = self._exchanged(self._commit(), parts_taken)
        stopped = self._stopped()
        return replace(turn, stopped=stopped) if stopped else turn

    def _step_arrived(self) -> None:
        """Step all envelopes whose turn it is; a step may end another's waiting."""
        while self.mailbox.has_arrived(self._is_ready):
            for header, frames, digest in self.mailbox.arrived(self._is_ready):
                self._step(self._received(header, frames), EnvelopeReceived(frames=frames), digest)

    def note_missing(self, party: PartyId) -> None:
        """Record with the next commit that a peer's stream has stood still for too long.

        Later envelopes wait for a missing one, or the next is of a kind that is not yet legal.
        """
        if (number := self.mailbox.missing(party)) is not None:
            reason = f"envelope {number} of {party} is missing, later ones arrive"
            self._note_withheld(party, reason)
        elif party in dict(self._stopped()) and (early := self.mailbox.next_envelope(party)):
            kind = early.header.kind
            self.refuse(early.frames, f"a {kind} of {party} before its time", by=party)

    def _stopped(self) -> tuple[tuple[PartyId, int], ...]:
        """Peers whose next envelope must wait for another peer's, with its number."""
        return self.mailbox.stopped(lambda kind: self.role.is_early(self.state, kind))

    def acknowledgement(self) -> Frames | None:
        """An envelope that acknowledges what is recorded; None if no peer waits for that.

        Call it until it returns None: a crowd takes several.
        """
        self._flush()
        return self.mailbox.acknowledgement(self._stamp(), RECEIVERS_MAX)

    def ask_again(self) -> tuple[Frames, ...]:
        """Requests for all missing parts: those on their way may be lost."""
        self._flush()
        return super().ask_again()

    def _recorded_input(
        self, recorded: EnvelopeReceived | Moved
    ) -> tuple[Input | PeerError, bytes]:
        if isinstance(recorded, EnvelopeReceived):
            header, digest = self.mailbox.recall(recorded.frames)
            return self._received(header, recorded.frames), digest
        return recorded, NO_PARENT

    def _step(self, given: Input | PeerError, recorded: RecordedInput, parent: bytes) -> None:
        if isinstance(given, Started):
            self.epoch = given.epoch
            self.mailbox.speak(given.speaks)
        if isinstance(given, TimerFired):
            self.armed.pop(given.timer, None)
            self._resting.discard(given.timer)
        self.is_ledger_due &= not isinstance(given, LedgerRead)
        self._is_charge_due &= not isinstance(given, Charged)
        try:
            if isinstance(given, PeerError):
                raise given
            before, (self.state, effects) = self.state, self.role.step(self.state, given)
            if isinstance(given, Received) and isinstance(recorded, EnvelopeReceived):
                is_moved = bool(effects) or self.state is not before
                self.mailbox.note_taken(given, recorded.frames, is_moved=is_moved)
            stored: tuple[RecordedEffect, ...] = tuple(
                self._perform(part, parent) for effect in effects for part in spread(effect)
            )
        except PeerError as refused:
            stored = (Refused(reason=str(refused)[:500]),)
            self.refusals.count += 1
            if isinstance(recorded, EnvelopeReceived):
                self.mailbox.note_refused(recorded.frames)
                header = decode_header(recorded.frames)
                if header.kind in NEEDED:
                    stored = (*stored, *self._wronged(Offence(header.sender), parent))
        # A release that waits for those of other peers is committed with the answer to all of them,
        # a score with its acknowledgement or with the next query.
        has_numbers = isinstance(given, Received) and isinstance(given.message, Numbers)
        self._append(recorded, stored, waits=has_numbers and not stored)

    def _wronged(self, offence: Offence, parent: bytes) -> tuple[RecordedEffect, ...]:
        """Let the role react to a peer whose message was refused or is missing."""
        # One timer for each peer and cause: repeating an offence must gain neither time nor memory.
        timer = f"{offence.cause}:{offence.sender}:"
        if self._is_watched(timer):
            return ()
        try:
            self.state, effects = self.role.step(self.state, offence)
        except PeerError:  # the role's table has no move for it
            return ()
        return tuple(self._perform(effect, parent) for effect in effects)

    def _answered(self, note: TurnedAway | Withheld) -> tuple[RecordedEffect, ...]:
        if note.party is None:
            return ()
        cause: OffenceCause = "missing" if isinstance(note, Withheld) else "offence"
        return self._wronged(Offence(note.party, cause), NO_PARENT)

    def _note_again(self, noted: Noted) -> None:
        if isinstance(noted, Acknowledged):
            self.mailbox.recall_ack(noted.frames)
            self._append(noted, ())
        else:
            self.refusals.noted[noted.party] += 1
            self._append(noted, self._answered(noted))

    def _commit(self) -> Turn:
        """Commit the turn; if a step asked for the ledger, also take the step that answers.

        Records that may wait stay in memory. No peer has been told that they arrived, so
        after a crash they are as if they had not.
        """
        if not self._uncommitted.is_due and self.outcome is None:
            return Turn((), (), None, waits=bool(self._uncommitted.records))
        if self.ledger is not None and self._uncommitted.charge(self.ledger):
            # One commit for a query and its answer; one that comes again is counted once.
            self._answer_charge(self.ledger)
        done, self._uncommitted = self._uncommitted, Uncommitted()
        done.commit(self.ledger, self._journal, self._both)
        turn = Turn(tuple(done.send), tuple(done.arm), self.outcome)
        if self.ledger is None or not (self.is_ledger_due or self._is_charge_due):
            return turn
        if self._is_charge_due:  # a journal that ends between the two steps
            self._answer_charge(self.ledger)
        else:
            read = LedgerRead(standing=self.ledger.standing())
            self._step(read, read, NO_PARENT)
        more = self._commit()
        return Turn((*turn.send, *more.send), (*turn.arm, *more.arm), more.outcome)

    def _flush(self) -> None:
        """Commit the records that waited: every envelope acknowledges them."""
        if self._uncommitted.records:
            self._uncommitted.is_due = True
            self._commit()

    def _answer_charge(self, ledger: LedgerPort) -> None:
        self._step(charged := ledger.charged(), charged, NO_PARENT)
        self.mailbox.allowance.note_charged(charged.refused)

    def _is_ready(self, header: Header, sequence: int, frames: Frames) -> bool:
        """Whether the role may have the next envelope of a stream."""
        if self.role.is_early(self.state, header.kind):
            return False
        if not is_in_parts(frames):
            return True
        limit = self.role.release_bytes_max(self.state)
        return self.parts.is_whole(header.sender, sequence, frames, limit)

    def _received(self, header: Header, frames: Frames) -> Received[Any] | PeerError:
        try:
            array = None
            if is_in_parts(frames):
                array = self.parts.whole(frames, self.role.release_bytes_max(self.state))
            return Received(header.sender, decode_body(header, frames, array))
        except PeerError as refused:
            return refused

    @property
    def is_committed(self) -> bool:
        """Whether every record is on disk."""
        return not self._uncommitted.records
