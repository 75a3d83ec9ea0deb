"""One pump turn on its way to disk: what it collects, and in which order it is settled.

It owns the shapes of recorded inputs and effects and the rule "ledger before journal"; it knows no
role, no bytes and no socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.machine import (
    Arm,
    CheckLedger,
    Fired,
    Input,
    LedgerOrder,
    LedgerRead,
    Ordered,
    ReadLedger,
    RememberHead,
    Reserve,
    Started,
)
from hdpvfl_mq.node.ports import Book, RecordStore
from hdpvfl_mq.wire.codec import Frames
from schemas.privacy import Release
from schemas.records import (
    LedgerEffect,
    LedgerInput,
    OperatorInput,
    StartedInput,
    StepInput,
    TimerInput,
)


@dataclass
class Uncommitted:
    """Everything of a turn that is not on disk yet."""

    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    refusals: list[tuple[str, bytes]] = field(default_factory=list)
    reservations: list[Reserve] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    ledger_orders: list[LedgerOrder] = field(default_factory=list)
    send: list[Frames] = field(default_factory=list)
    arm: list[Arm] = field(default_factory=list)

    def commit(self, book: Book | None, journal: RecordStore, acks: Mapping[str, int]) -> None:
        """Ledger first, journal second: a crash between them over-counts, never under-counts."""
        if book is not None:
            self._settle(book)
        elif self.releases or self.reservations or self.ledger_orders:
            raise IntegrityError("a release without a ledger to book it in")
        if self.records or self.refusals:
            journal.commit(self.records, acks, self.refusals)

    def _settle(self, book: Book) -> None:
        for order in self.ledger_orders:
            if isinstance(order, CheckLedger):
                book.check_restored(order.party, order.head, order.signature)
            elif isinstance(order, RememberHead):
                book.remember(order.party, order.head, order.signature)
        for reservation in self.reservations:
            book.reserve(reservation)
        if self.releases:
            book.book(self.releases)


def plain_input(recorded: StepInput) -> Input:
    """What a record without an envelope says came in."""
    match recorded:
        case TimerInput(name=name):
            return Fired(name)
        case OperatorInput(order=order):
            return Ordered(order)
        case StartedInput(epoch=epoch, standing=standing):
            return Started(epoch, standing)
        case LedgerInput(standing=standing):
            return LedgerRead(standing)
        case _:
            raise IntegrityError(f"a record of an unknown kind: {recorded.kind}")


def event_input(event: Fired | Ordered) -> StepInput:
    """How an event is recorded."""
    if isinstance(event, Fired):
        return TimerInput(name=event.timer)
    return OperatorInput(order="withdraw")


def ledger_effect(order: LedgerOrder) -> LedgerEffect:
    """How an order to the ledger is recorded."""
    match order:
        case ReadLedger():
            return LedgerEffect(order="read")
        case RememberHead(party=party, head=head):
            return LedgerEffect(order="remember", party=party, head=head)
        case CheckLedger(party=party, head=head):
            return LedgerEffect(order="check", party=party, head=head)
