"""One process without its sockets: machine + journal + sequences. Frames in, frames out.

It owns the order of a turn: verify, put in order, step, book, commit, and only then hand out what
is to be sent. It knows no socket and no clock. Recovery and replay are the same code: `open` feeds
the journal's inputs through the role again and demands the same bytes; a snapshot only lets it
start after the first record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nacl.signing import VerifyKey

from hdpvfl_mq.errors import CheatingError, PeerError, WithheldError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import Effect, Input, Offence, OffenceCause, Received, Role, Send
from hdpvfl_mq.node import node_snapshot
from hdpvfl_mq.node.chained import Chained
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.parts import PartExchange
from hdpvfl_mq.node.ports import Contact, Identity, LedgerPort, RecordStore, Turn
from hdpvfl_mq.node.uncommitted import Uncommitted
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from schemas.base import printable
from schemas.envelope import NO_PARENT, Header
from schemas.federation import Forget, Meet, OperatorCommand, SignWith
from schemas.ids import PartyId
from schemas.messages import NEEDED, Part, PartRequest, Releasing
from schemas.privacy import LedgerHead
from schemas.records import (
    GENESIS,
    Acknowledged,
    Arm,
    Book,
    Charge,
    Charged,
    CheckLedger,
    EnvelopeReceived,
    EnvelopeSent,
    Finish,
    LedgerRead,
    LedgerStanding,
    Noted,
    OperatorRequest,
    ReadLedger,
    RecordedEffect,
    RecordedInput,
    Refused,
    RememberHead,
    Reserve,
    Started,
    StepRecord,
    TimerFired,
    TurnedAway,
    Withheld,
)
from schemas.snapshot import NodeSnapshot

Event = TimerFired | OperatorRequest | OperatorCommand
Moved = Started | LedgerRead | Charged | Event
# A header names all receivers of its envelope and goes to each of them. Bytes and time of one that
# goes to all parties would grow with the square of their number.
RECEIVERS_MAX = 32
TURNED_AWAY_MAX = 10_000  # records of refused frames that one process writes
NO_LEDGER = LedgerStanding(head=LedgerHead(sequence=0, digest=GENESIS), mu2_units_free=0)


class Node(Chained):
    """A role with its journal and its mailbox."""

    def __init__(
        self,
        role: Role,
        identity: Identity,
        contacts: Mapping[PartyId, Contact],
        *,
        journal: RecordStore,
        ledger: LedgerPort | None = None,
    ) -> None:
        super().__init__(journal)
        self.role = role
        self.identity = identity
        self.state: Any = role.initial()
        self.outcome: str | None = None
        self.mailbox = Mailbox(identity, contacts)
        self.parts = PartExchange(journal)
        self._ledger = ledger
        self.armed: dict[str, Arm] = {}
        self.is_ledger_due = False
        self._is_charge_due = False
        self._turned_away: list[TurnedAway | Withheld] = []
        self._noted = 0  # refused frames recorded so far
        self.refused = 0  # refused frames and illegal moves

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> int:
        """Replay the journal, demanding the same bytes; returns the number of steps."""
        for record, stored in chain.walk(self._journal.records(self.steps), self.steps, self.head):
            self.refold(record, stored)
        self._uncommitted = Uncommitted()
        self.mailbox.forgive()
        return self.steps

    def refold(self, record: StepRecord, stored: bytes) -> None:
        """Replay one recorded step; IntegrityError if the result differs from the record."""
        if isinstance(record.input, Acknowledged | TurnedAway | Withheld):
            self._note_again(record.input)
        else:
            given, parent = self._recorded_input(record.input)
            self._step(given, record.input, parent)
        if self._uncommitted.records[-1][1] != stored:
            raise chain.DivergenceError(record.index, stored, self._uncommitted.records[-1][1])
        self._uncommitted = Uncommitted()

    def start(self) -> Turn:
        """Announce this process; call it once, after `open`."""
        standing = self._ledger.standing() if self._ledger else NO_LEDGER
        speaks = self.identity.versions[1]
        started = Started(epoch=self.epoch + 1, standing=standing, speaks=speaks)
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
                    self._withheld(sender, str(missing))
            except PeerError as refused:
                self.refuse(frames, str(refused))
        parts_taken = self.parts.store()
        is_due = events or self._turned_away or self.mailbox.has_arrived(self._is_ready)
        if is_due or self.outcome is not None:
            for frames in self.mailbox.bare_acks():  # recorded only in a turn that commits anyway
                self._append(Acknowledged(frames=frames), ())
        for note in self._turned_away:
            self._append(note, self._answered(note))
        self._turned_away.clear()
        for event in events:
            if not self._is_answered(event):
                self._step(event, event, NO_PARENT)
        while self.mailbox.has_arrived(self._is_ready):  # again: a step may end another's waiting
            for header, frames, digest in self.mailbox.arrived(self._is_ready):
                self._step(self._received(header, frames), EnvelopeReceived(frames=frames), digest)
        return self._exchanged(self._commit(), parts_taken)

    def refuse(self, frames: Frames, reason: str, *, by: PartyId | None = None) -> None:
        """Record refused frames with the next commit.

        `by` is a peer that signed something false; the role learns of it.
        """
        self.refused += 1
        if self._noted >= TURNED_AWAY_MAX:
            return
        self._noted += 1
        digest = hashlib.sha256(b"".join(frames[:4])).digest()
        note = TurnedAway(reason=printable(reason[:500]), digest=digest, party=by)
        self._turned_away.append(note)

    def note_missing(self, party: PartyId) -> None:
        """Record with the next commit that a peer's stream has stood still for too long.

        Later envelopes wait for a missing one, or the next is of a kind that is not yet legal.
        """
        if (number := self.mailbox.missing(party)) is not None:
            self._withheld(party, f"envelope {number} of {party} is missing, later ones arrive")
        elif party in dict(self._stopped()) and (early := self.mailbox.next_envelope(party)):
            kind = early.header.kind
            self.refuse(early.frames, f"a {kind} of {party} before its time", by=party)

    def _stopped(self) -> tuple[tuple[PartyId, int], ...]:
        """Peers whose next envelope must wait for another peer's, with its number."""
        return self.mailbox.stopped(lambda kind: self.role.is_early(self.state, kind))

    def _withheld(self, party: PartyId, reason: str) -> None:
        self.refused += 1
        if self._noted < TURNED_AWAY_MAX:
            self._noted += 1
            self._turned_away.append(Withheld(party=party, reason=printable(reason[:500])))

    @property
    def has_refusals(self) -> bool:
        """Whether refused frames wait for a commit."""
        return bool(self._turned_away)

    def acknowledgement(self) -> Frames | None:
        """An envelope that acknowledges what is recorded; None if no peer waits for that.

        Call it until it returns None: a crowd takes several.
        """
        return self.mailbox.acknowledgement(self._stamp(), RECEIVERS_MAX)

    def _recorded_input(
        self, recorded: EnvelopeReceived | Moved
    ) -> tuple[Input | PeerError, bytes]:
        match recorded:
            case EnvelopeReceived(frames=frames):
                header, digest = self.mailbox.recall(frames)
                return self._received(header, frames), digest
            case _:
                return recorded, NO_PARENT

    # -- steps --------------------------------------------------------------------------------

    def _step(self, given: Input | PeerError, recorded: RecordedInput, parent: bytes) -> None:
        if isinstance(given, Started):
            self.epoch = given.epoch
            self.mailbox.speak(given.speaks)
        if isinstance(given, TimerFired):
            self.armed.pop(given.timer, None)
        if isinstance(given, LedgerRead):
            self.is_ledger_due = False
        if isinstance(given, Charged):
            self._is_charge_due = False
        try:
            if isinstance(given, PeerError):
                raise given
            self.state, effects = self.role.step(self.state, given)
            stored: tuple[RecordedEffect, ...] = tuple(
                self._perform(part, parent) for effect in effects for part in _spread(effect)
            )
        except PeerError as refused:
            stored = (Refused(reason=str(refused)[:500]),)
            self.refused += 1
            if isinstance(recorded, EnvelopeReceived):
                self.mailbox.note_refused(recorded.frames)
                header = decode_header(recorded.frames)
                if header.kind in NEEDED:
                    stored = (*stored, *self._wronged(Offence(header.sender), parent))
        self._append(recorded, stored)

    def _wronged(self, offence: Offence, parent: bytes) -> tuple[RecordedEffect, ...]:
        """Let the role react to a peer whose message was refused or is missing."""
        # One timer for each peer and cause: repeating an offence must gain neither time nor memory.
        timer = f"{offence.cause}:{offence.sender}:"
        if any(armed.startswith(timer) for armed in self.armed):
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
            self._noted += 1
            self._append(noted, self._answered(noted))

    def _perform(self, effect: Effect, parent: bytes) -> RecordedEffect:
        """Collect what the effect asks for after the commit; returns the effect as recorded."""
        match effect:
            case Send(to=to, message=message):
                frames = self.mailbox.write(to, message, parent, self._stamp())
                if isinstance(message, Releasing):
                    self._uncommitted.releases.append(message.release)
                    if is_in_parts(frames):
                        data = message.release.tensor.data
                        self._uncommitted.parts.append((PartList.of_frames(frames), data))
                self._uncommitted.send.append(frames)
                return EnvelopeSent(frames=frames)
            case Arm(timer=timer):
                self._uncommitted.arm.append(effect)
                self.armed[timer] = effect
            case Reserve():
                self._uncommitted.reservations.append(effect)
            case Book(release=release):
                self._uncommitted.releases.append(release)
            case Charge():
                self._uncommitted.charges.append(effect)
                self._is_charge_due = True  # kept until `Charged` is recorded
            case ReadLedger() | RememberHead() | CheckLedger():
                self._uncommitted.ledger_orders.append(effect)
                # Set until `LedgerRead` is recorded: a crash may come between the two steps.
                self.is_ledger_due |= isinstance(effect, ReadLedger)
            case Meet() | Forget() | SignWith():
                self._acquaint(effect)
            case Finish(outcome=outcome):
                self.outcome = outcome
            case Refused():
                pass  # an input that was put aside and is no legal move
        return effect

    def _acquaint(self, effect: Meet | Forget | SignWith) -> None:
        """Change whose envelopes are accepted, or with which key this node signs."""
        match effect:
            case Meet(party=party, role=role, verify_key=key, speaks=version):
                self.mailbox.meet(party, Contact(role, VerifyKey(key), version))
            case Forget(party=party):
                self.mailbox.forget(party, self.steps)
            case SignWith(verify_key=key):
                self.mailbox.sign_with(key)

    def _commit(self) -> Turn:
        """Commit the turn; if a step asked for the ledger, also take the step that answers."""
        if self._ledger is not None and self._uncommitted.charge(self._ledger):
            # One commit for a query and its answer. After a crash before it the query comes again,
            # and the account returns what it has counted for it.
            self._answer_charge(self._ledger)
        done, self._uncommitted = self._uncommitted, Uncommitted()
        done.commit(self._ledger, self._journal)
        turn = Turn(tuple(done.send), tuple(done.arm), self.outcome)
        if self._ledger is None or not (self.is_ledger_due or self._is_charge_due):
            return turn
        if self._is_charge_due:  # a journal that ends between the two steps
            self._answer_charge(self._ledger)
        else:
            read = LedgerRead(standing=self._ledger.standing())
            self._step(read, read, NO_PARENT)
        more = self._commit()
        return Turn((*turn.send, *more.send), (*turn.arm, *more.arm), more.outcome)

    def _answer_charge(self, ledger: LedgerPort) -> None:
        charged = ledger.charged()
        self._step(charged, charged, NO_PARENT)

    # -- parts of large arrays ----------------------------------------------------------------

    def ask_again(self) -> tuple[Frames, ...]:
        """Requests for all missing parts: those on their way may be lost."""
        return self._requests(again=True)

    def note_unserved(self) -> None:
        """Record with the next commit who leaves requests without parts; call it when one is due.

        Like a missing envelope: the run ends unless a part comes within seconds.
        """
        for party in self.parts.unserved():
            self._withheld(party, f"{party} serves no part of a release, but sends other things")

    def _is_answered(self, event: Event) -> bool:
        """Whether a timer waits for something missing of a peer whose parts come again."""
        if not isinstance(event, TimerFired) or not event.timer.startswith("missing:"):
            return False
        if not self.parts.is_served(event.timer.split(":")[1]):
            return False
        self.armed.pop(event.timer, None)
        return True

    def _take(self, frames: Frames) -> None:
        header = self.mailbox.accept(frames)
        if header is None:
            if self.parts.is_asking:
                self.parts.heard(decode_header(frames).sender)
            return
        message = decode_body(header, frames)
        assert isinstance(message, Part | PartRequest)
        if isinstance(message, PartRequest):
            self.parts.heard(header.sender)
            envelope = self.mailbox.waiting_envelope(header.sender, message.sequence)
            self.parts.want(header.sender, message, envelope)
        else:
            self.parts.take(header.sender, message)

    def _is_ready(self, header: Header, sequence: int, frames: Frames) -> bool:
        """Whether the role may have the next envelope of a stream."""
        if self.role.is_early(self.state, header.kind):
            return False
        return not is_in_parts(frames) or self._is_whole(header.sender, sequence, frames)

    def _is_whole(self, sender: PartyId, sequence: int, frames: Frames) -> bool:
        """Whether the role may have an envelope in parts; the step refuses one that is too large.

        Before the plan is known, the envelope waits, and none of its parts is asked for.
        """
        limit = self.role.release_bytes_max(self.state)
        if limit is None:
            return False
        is_too_large = PartList.of_frames(frames).sizes.bytes > limit
        return is_too_large or self.parts.expect(sender, sequence, frames)

    def _received(self, header: Header, frames: Frames) -> Received[Any] | PeerError:
        try:
            return Received(header.sender, decode_body(header, frames, self._array(frames)))
        except PeerError as refused:
            return refused

    def _array(self, frames: Frames) -> memoryview | None:
        """The whole array of an envelope in parts; PeerError if the plan has no such release."""
        if not is_in_parts(frames):
            return None
        parts, limit = PartList.of_frames(frames), self.role.release_bytes_max(self.state) or 0
        if parts.sizes.bytes > limit:
            raise PeerError(f"a release of {parts.sizes.bytes} bytes, where the plan has {limit}")
        return self._journal.joined(parts)

    def _exchanged(self, turn: Turn, taken: int) -> Turn:
        """Add requests for missing parts, and the parts that peers asked for, to a turn."""
        if stopped := self._stopped():
            turn = replace(turn, stopped=stopped)
        if not self.parts.is_busy and not taken:
            return turn
        stamp = self._stamp()
        served = tuple(
            self.mailbox.unnumbered(party, part, stamp) for party, part in self.parts.served()
        )
        return replace(
            turn,
            send=(*turn.send, *self._requests()),
            parts=served,
            parts_taken=taken,
            is_asking=self.parts.is_asking,
        )

    def _requests(self, *, again: bool = False) -> tuple[Frames, ...]:
        stamp = self._stamp()
        asked = self.parts.requests(again=again)
        return tuple(self.mailbox.unnumbered(party, request, stamp) for party, request in asked)

    # -- snapshots ----------------------------------------------------------------------------

    def snapshot(self) -> NodeSnapshot | None:
        """A snapshot of what is on disk, or None while the role's state cannot be frozen."""
        return node_snapshot.take(self)

    def resume(self, snapshot: NodeSnapshot) -> bool:
        """Continue from a snapshot, before `open`; False if it is not of this node."""
        return node_snapshot.resume(self, snapshot)


def _spread(effect: Effect) -> tuple[Effect, ...]:
    """Several envelopes in place of one with very many receivers.

    A release stays one envelope: it is the same bytes for all, and large beside its header.
    """
    if not isinstance(effect, Send) or len(effect.to) <= RECEIVERS_MAX:
        return (effect,)
    if isinstance(effect.message, Releasing):
        return (effect,)
    firsts = range(0, len(effect.to), RECEIVERS_MAX)
    return tuple(replace(effect, to=effect.to[k : k + RECEIVERS_MAX]) for k in firsts)
