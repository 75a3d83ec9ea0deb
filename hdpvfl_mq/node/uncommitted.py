"""One turn on its way to disk: what it collects, and in which order it is settled.

It owns the rule "ledger before journal"; it knows no role, no bytes and no socket.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from hdpvfl_mq.errors import IntegrityError, RefusedError
from hdpvfl_mq.machine import LedgerOrder
from hdpvfl_mq.node.ports import LedgerPort, RecordStore
from hdpvfl_mq.wire.codec import Frames
from schemas.privacy import Release
from schemas.records import Arm, CheckLedger, RememberHead, Reserve


@dataclass
class Uncommitted:
    """Everything of a turn that is not on disk yet."""

    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    reservations: list[Reserve] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    ledger_orders: list[LedgerOrder] = field(default_factory=list)
    send: list[Frames] = field(default_factory=list)
    arm: list[Arm] = field(default_factory=list)

    def commit(self, ledger: LedgerPort | None, journal: RecordStore) -> None:
        """Ledger first, journal second: a crash between them over-counts, never under-counts."""
        if ledger is not None:
            self._settle(ledger)
        elif self.releases or self.reservations or self.ledger_orders:
            raise IntegrityError("a release without a ledger to book it in")
        if self.records:
            journal.commit(self.records)

    def _settle(self, ledger: LedgerPort) -> None:
        for order in self.ledger_orders:
            if isinstance(order, CheckLedger):
                ledger.check_restored(order.party, order.head, order.signature)
            elif isinstance(order, RememberHead):
                ledger.remember(order.party, order.head, order.signature)
        for reservation in self.reservations:
            # Who reserves reads the ledger in the next step, and sees there that it was refused.
            with suppress(RefusedError):
                ledger.reserve(reservation)
        if self.releases:
            ledger.book(self.releases)
