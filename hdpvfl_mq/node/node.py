"""One process without its sockets: machine + journal + sequences. Frames in, frames out.

It owns the order of things: verify, put in order, step, book, commit, and only then hand out what
is to be sent. It knows no socket and no clock. Recovery and replay are the same code: `open` feeds
the journal's inputs through the role again and demands the same bytes; a snapshot only lets it
begin later than with the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from nacl.signing import VerifyKey

from hdpvfl_mq import __version__
from hdpvfl_mq.errors import IntegrityError, PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.machine import Effect, Input, Received, Role, Send
from hdpvfl_mq.node.mailbox import Mailbox, Stamp
from hdpvfl_mq.node.ports import Contact, Identity, LedgerPort, RecordStore, Turn
from hdpvfl_mq.node.uncommitted import Uncommitted
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from schemas.base import printable
from schemas.envelope import NO_PARENT, Header
from schemas.federation import Meet, OperatorCommand
from schemas.ids import PartyId
from schemas.messages import Releasing
from schemas.privacy import LedgerHead
from schemas.records import (
    GENESIS,
    Acknowledged,
    Arm,
    Book,
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
)
from schemas.snapshot import NodeSnapshot
from schemas.tensor import Tensor

Event = TimerFired | OperatorRequest | OperatorCommand
Moved = Started | LedgerRead | Event
TURNED_AWAY_MAX = 10_000  # records of what was turned away, in one process
NO_LEDGER = LedgerStanding(head=LedgerHead(sequence=0, digest=GENESIS), mu2_units_free=0)


class Node:
    """A role with a memory and a voice."""

    def __init__(
        self,
        role: Role,
        identity: Identity,
        contacts: Mapping[PartyId, Contact],
        *,
        journal: RecordStore,
        ledger: LedgerPort | None = None,
    ) -> None:
        self.role = role
        self.identity = identity
        self.state: Any = role.initial()
        self.outcome: str | None = None
        self.head = GENESIS
        self.epoch = 0
        self.steps = 0
        self.mailbox = Mailbox(identity, contacts)
        self._journal = journal
        self._ledger = ledger
        self._tree = Tree()
        self._armed: dict[str, Arm] = {}
        self._is_ledger_due = False
        self._uncommitted = Uncommitted()
        self._turned_away: list[TurnedAway] = []
        self._noted = 0  # what was turned away so far

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> int:
        """Fold what the journal holds, demanding the same bytes; returns the number of steps."""
        for record, stored in chain.walk(self._journal.records(self.steps), self.steps, self.head):
            self.refold(record, stored)
        self._uncommitted = Uncommitted()
        return self.steps

    def refold(self, record: StepRecord, stored: bytes) -> None:
        """One recorded step again; IntegrityError when it does not come out as recorded."""
        if isinstance(record.input, Acknowledged | TurnedAway):
            self._note_again(record.input)
        else:
            given, parent = self._recorded_input(record.input)
            self._step(given, record.input, parent)
        if self._uncommitted.records[-1][1] != stored:
            raise chain.DivergenceError(record.index, stored, self._uncommitted.records[-1][1])
        self._uncommitted = Uncommitted()

    def start(self) -> Turn:
        """Announce this process; to be called once, after `open`."""
        standing = self._ledger.standing() if self._ledger else NO_LEDGER
        started = Started(epoch=self.epoch + 1, standing=standing)
        self._uncommitted.arm.extend(self._armed.values())  # armed before a crash, still to run out
        self._step(started, started, NO_PARENT)
        return self._commit()

    def turn(self, arrivals: Sequence[Frames], events: Sequence[Event] = ()) -> Turn:
        """Take in everything that has arrived, step, commit; then the caller may send."""
        for frames in arrivals:
            try:
                self.mailbox.accept(frames)
            except PeerError as refused:
                self.refuse(frames, str(refused))
        is_due = events or self.mailbox.has_arrived or self._turned_away
        if is_due or self.outcome is not None:
            for frames in self.mailbox.bare_acks():  # they wait for a turn that commits anyway
                self._append(Acknowledged(frames=frames), ())
        for note in self._turned_away:
            self._append(note, ())
        self._turned_away.clear()
        for event in events:
            self._step(event, event, NO_PARENT)
        for header, frames, digest in self.mailbox.arrived():
            self._step(_received(header, frames), EnvelopeReceived(frames=frames), digest)
        return self._commit()

    def close(self) -> None:
        """Close the journal; the node takes no turn after this."""
        self._journal.close()

    def refuse(self, frames: Frames, reason: str) -> None:
        """Record frames that were turned away at the door, with the next commit."""
        if self._noted >= TURNED_AWAY_MAX:
            return
        self._noted += 1
        digest = hashlib.sha256(b"".join(frames[:4])).digest()
        self._turned_away.append(TurnedAway(reason=printable(reason[:500]), digest=digest))

    @property
    def has_refusals(self) -> bool:
        """Whether refused frames wait for a commit."""
        return bool(self._turned_away)

    def acknowledgement(self) -> Frames | None:
        """One envelope that says what has been recorded, if anybody is owed that."""
        return self.mailbox.acknowledgement(self._stamp())

    def _stamp(self) -> Stamp:
        return Stamp(self.epoch, self.head, self._tree.size, self._tree.root())

    def _recorded_input(
        self, recorded: EnvelopeReceived | Moved
    ) -> tuple[Input | PeerError, bytes]:
        match recorded:
            case EnvelopeReceived(frames=frames):
                header, digest = self.mailbox.recall(frames)
                return _received(header, frames), digest
            case _:
                return recorded, NO_PARENT

    # -- steps --------------------------------------------------------------------------------

    def _step(self, given: Input | PeerError, recorded: RecordedInput, parent: bytes) -> None:
        if isinstance(given, Started):
            self.epoch = given.epoch
        if isinstance(given, TimerFired):
            self._armed.pop(given.timer, None)
        if isinstance(given, LedgerRead):
            self._is_ledger_due = False
        try:
            if isinstance(given, PeerError):
                raise given
            self.state, effects = self.role.step(self.state, given)
            stored: tuple[RecordedEffect, ...] = tuple(self._perform(e, parent) for e in effects)
        except PeerError as refused:
            stored = (Refused(reason=str(refused)[:500]),)
            if isinstance(recorded, EnvelopeReceived):
                self.mailbox.note_refused(recorded.frames)
        self._append(recorded, stored)

    def _note_again(self, noted: Noted) -> None:
        if isinstance(noted, Acknowledged):
            self.mailbox.recall_ack(noted.frames)
        else:
            self._noted += 1
        self._append(noted, ())

    def _append(self, recorded: RecordedInput, effects: tuple[RecordedEffect, ...]) -> None:
        """One more record of the chain."""
        record = chain.encode(
            StepRecord(index=self.steps, previous=self.head, input=recorded, effects=effects)
        )
        self.head = chain.link(record)
        self._tree.append(self.head)
        self._uncommitted.records.append((self.steps, record, self.head))
        self.steps += 1

    def _perform(self, effect: Effect, parent: bytes) -> RecordedEffect:
        """Note what the effect wants done after the commit; returns it as it is recorded."""
        match effect:
            case Send(to=to, message=message):
                frames = self.mailbox.write(to, message, parent, self._stamp())
                if isinstance(message, Releasing):
                    self._uncommitted.releases.append(message.release)
                self._uncommitted.send.append(frames)
                return EnvelopeSent(frames=frames)
            case Arm(timer=timer):
                self._uncommitted.arm.append(effect)
                self._armed[timer] = effect
            case Reserve():
                self._uncommitted.reservations.append(effect)
            case Book(release=release):
                self._uncommitted.releases.append(release)
            case ReadLedger() | RememberHead() | CheckLedger():
                self._uncommitted.ledger_orders.append(effect)
                # Kept until it is done: a crash may come between the two steps.
                self._is_ledger_due |= isinstance(effect, ReadLedger)
            case Meet(party=party, role=role, verify_key=key):
                self.mailbox.meet(party, Contact(role, VerifyKey(key)))
            case Finish(outcome=outcome):
                self.outcome = outcome
            case Refused():
                pass  # an input that was put aside and turned out to be no legal move
        return effect

    def _commit(self) -> Turn:
        """Put the turn on disk; if a step asked for the ledger, take that step too."""
        done, self._uncommitted = self._uncommitted, Uncommitted()
        done.commit(self._ledger, self._journal)
        turn = Turn(tuple(done.send), tuple(done.arm), self.outcome)
        if not self._is_ledger_due or self._ledger is None:
            return turn
        standing = self._ledger.standing()
        read = LedgerRead(standing=standing)
        self._step(read, read, NO_PARENT)
        more = self._commit()
        return Turn((*turn.send, *more.send), (*turn.arm, *more.arm), more.outcome)

    # -- snapshots ----------------------------------------------------------------------------

    def snapshot(self) -> NodeSnapshot | None:
        """The memory of what is on disk, or None while the role's state cannot be put away."""
        is_between = self.steps > 0 and self.outcome is None
        state = self.role.freeze(self.state) if is_between else None
        marks = self.mailbox.marks() if state is not None else ()
        if state is None or marks is None:
            return None
        # An envelope states the size of its sender's journal: that is the index of its record.
        waiting = {decode_header(frames).size for frames in self.mailbox.unacknowledged()}
        greeting = self.mailbox.greeting
        return NodeSnapshot(
            version=__version__,
            party=self.identity.party,
            steps=self.steps,
            head=self.head,
            peaks=self._tree.peaks,
            epoch=self.epoch,
            streams=marks,
            unacknowledged=Tensor.of(np.array(sorted(waiting), dtype=np.int64)),
            greeting=-1 if greeting is None else decode_header(greeting).size,
            timers=tuple(self._armed.values()),
            is_ledger_due=self._is_ledger_due,
            state=state,
        )

    def resume(self, snapshot: NodeSnapshot) -> bool:
        """Take a snapshot for what it says, before `open`; False, and nothing done, if it is not
        of this journal, these rows and this program.
        """
        if snapshot.version != __version__ or snapshot.party != self.identity.party:
            return False
        last = self._stored(snapshot.steps - 1)
        if last is None or last[2] != snapshot.head:
            return False
        state = self.role.thaw(snapshot.state)
        if state is None:
            return False
        self.state, self.steps, self.head = state, snapshot.steps, snapshot.head
        self._tree = Tree(snapshot.steps, snapshot.peaks)
        self.epoch, self._is_ledger_due = snapshot.epoch, snapshot.is_ledger_due
        self._armed = {arm.timer: arm for arm in snapshot.timers}
        waiting = [f for i in snapshot.unacknowledged.array() for f in self._sent(int(i))]
        greeting = self._sent(snapshot.greeting)[-1] if snapshot.greeting >= 0 else None
        self.mailbox.restore(snapshot.streams, waiting, greeting)
        return True

    def _stored(self, index: int) -> tuple[int, bytes, bytes] | None:
        found = next(iter(self._journal.records(index)), None)
        if found is None or found[0] != index:
            return None
        if chain.link(found[1]) != found[2]:
            raise IntegrityError(f"journal record {index} does not match its digest")
        return found

    def _sent(self, index: int) -> list[Frames]:
        """The envelopes one record holds."""
        stored = self._stored(index)
        if stored is None:
            raise IntegrityError(f"journal record {index} is missing")
        effects = chain.decode(stored[1], index).effects
        return [effect.frames for effect in effects if isinstance(effect, EnvelopeSent)]


def _received(header: Header, frames: Frames) -> Received[Any] | PeerError:
    try:
        return Received(header.sender, decode_body(header, frames))
    except PeerError as refused:
        return refused
