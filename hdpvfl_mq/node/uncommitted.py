"""One turn before it is on disk: what it collects, and the order in which it is committed.

It owns the rule that a turn is over when ledger and journal are both durable; it knows no role, no
bytes and no socket. docs/decisions/11-two-writes.md goes through every crash between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from hdpvfl_mq.errors import IntegrityError, RefusedError
from hdpvfl_mq.machine import LedgerOrder
from hdpvfl_mq.node.ports import LedgerPort, RecordStore, Write
from hdpvfl_mq.wire.codec import Frames
from hdpvfl_mq.wire.parts import Buffer, PartList
from schemas.privacy import Release
from schemas.records import Arm, Charge, CheckLedger, RememberHead, Reserve

_PARTS_AT_ONCE = 16
WAITING_BYTES_MAX = 4 * 2**20  # of records that wait; a commit is cheap beside its bytes then
# Makes the ledger's and the journal's writes of one turn durable; returns when both are.
WriteBoth = Callable[[Write, Write], None]


def one_by_one(ledger: Write, journal: Write) -> None:
    """Write the ledger, then the journal."""
    ledger()
    journal()


@dataclass
class Uncommitted:
    """Everything in a turn that is not on disk yet."""

    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    reservations: list[Reserve] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    charged: list[Write] = field(default_factory=list)  # what the ledger must remember of them
    ledger_orders: list[LedgerOrder] = field(default_factory=list)
    parts: list[tuple[PartList, Buffer]] = field(default_factory=list)
    send: list[Frames] = field(default_factory=list)
    arm: list[Arm] = field(default_factory=list)
    is_due: bool = False  # else all records may wait for the next commit
    record_bytes: int = 0

    def add(self, record: tuple[int, bytes, bytes], *, waits: bool) -> None:
        """Add a record; one that `waits` needs no commit of its own, unless many do."""
        self.records.append(record)
        self.record_bytes += len(record[1])
        self.is_due |= not waits or self.record_bytes > WAITING_BYTES_MAX

    def commit(self, ledger: LedgerPort | None, journal: RecordStore, both: WriteBoth) -> None:
        """Make the turn durable; the caller sends only after this returns.

        A booking that is refused raises before the journal is written. A crash between the two
        writes under-counts nothing that was sent: `Node.open` books what only the journal has.
        """
        if ledger is not None:
            self._settle(ledger)
        elif self.releases or self.charges or self.reservations or self.ledger_orders:
            raise IntegrityError("a release without a ledger to book it in")
        for parts, array in self.parts:
            _keep(journal, parts, array)
        if ledger is not None and (self.releases or self.charged):
            both(self._ledger_write(ledger), lambda: journal.commit(self.records))
        elif self.records:
            journal.commit(self.records)

    def _ledger_write(self, ledger: LedgerPort) -> Write:
        """What the ledger writes beside the journal: a run has releases or charges, never both."""
        if self.releases:
            assert not self.charged
            return ledger.booking(self.releases)

        def remember() -> None:
            for write in self.charged:
                write()

        return remember

    def charge(self, ledger: LedgerPort) -> bool:
        """Charge queries of scores; whether there were any."""
        charges, self.charges = self.charges, []
        self.charged += [ledger.charge(charge) for charge in charges]
        return bool(charges)

    def _settle(self, ledger: LedgerPort) -> None:
        for order in self.ledger_orders:
            if isinstance(order, CheckLedger):
                ledger.check_restored(order.party, order.head, order.signature)
            elif isinstance(order, RememberHead):
                ledger.remember(order.party, order.head, order.signature)
        for reservation in self.reservations:
            # A role that reserves reads the ledger in the next step and learns there of a refusal.
            with suppress(RefusedError):
                ledger.reserve(reservation)


def _keep(journal: RecordStore, parts: PartList, array: Buffer) -> None:
    """Store the parts of a release before the record that lists them, a few at a time."""
    for first in range(0, len(parts), _PARTS_AT_ONCE):
        numbers = range(first, min(first + _PARTS_AT_ONCE, len(parts)))
        journal.keep_parts((parts.digests[n], parts.cut(array, n)) for n in numbers)
