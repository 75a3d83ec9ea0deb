"""A party's privacy ledger in one SQLite file that outlives runs.

It owns the file, its lock, the transaction and the hash chain on disk; the rules are in ledger.py.
It knows no message and no journal. The file holds the openings of its entries, so anybody with the
file can read and check it. Writing needs the ledger's secret, which is not in the file.

*Guarantee.* A call that returns is on disk (write-ahead log, synchronous FULL). A call that raises
has booked nothing, and after a store error every later call raises too: nothing may be sent. The
caller books first and sends afterwards, so the true spend is never above the ledger. Booking the
same release again changes nothing, so a journal may be folded again after a crash; another payload
under the same release id is an IntegrityError.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hdpvfl_mq.durable import make_exclusive
from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.privacy.ledger import Books, Entry, already, apply, decode, encode, extend, in_slot
from hdpvfl_mq.privacy.ledger_heads import ACCOUNT, LedgerHeads
from hdpvfl_mq.privacy.ledger_rows import folded, release_id_of
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_sketch import ASKED_FROM, IdSketch, same_people, shared
from hdpvfl_mq.privacy.ledger_tables import (
    claim,
    connected,
    make_tables,
    sketches_in,
    store_sketch,
    translated,
)
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from schemas.privacy import (
    Budget,
    BudgetsApart,
    CapFixed,
    LedgerHead,
    PeopleCounted,
    ReleaseBooked,
    RunReserved,
    RunSettled,
    SecretFixed,
)


class Ledger(LedgerHeads):
    """One party's ledger; the only connection to its file."""

    def __init__(
        self, connection: sqlite3.Connection, party: str, secret: LedgerSecret | None = None
    ) -> None:
        """Take over a connection with `isolation_level=None`, lock the file and fold its entries.

        Without its secret the ledger is read-only.
        """
        super().__init__(connection)
        self.party = party
        self._secret: LedgerSecret | None = None
        self.people: ScoredPeople | None = None  # the account of scored people, once opened
        self.people_file: Path | None = None
        try:
            # Lock before the first read, so that a second process that opens it fails at once.
            make_exclusive(connection)
            connection.execute("BEGIN IMMEDIATE")
            make_tables(connection)
            claim(connection, party)
            connection.execute("COMMIT")
            self._books, self._head = folded(connection)
        except sqlite3.Error as error:
            raise translated(error) from error
        if secret is not None:
            self.unlock(secret)

    @classmethod
    def open(cls, path: str | Path, party: str, secret: LedgerSecret | None = None) -> Ledger:
        """Open or create the ledger file of a party; ":memory:" stores nothing on disk."""
        connection = connected(path)
        try:
            return cls(connection, party, secret)
        except Exception:
            connection.close()
            raise

    def close_file(self) -> None:
        """Close the ledger and the account of scored people, and release their locks."""
        if self.people is not None:
            with suppress(OperatorError):  # after a fault of the disk the ledger keeps the entries
                seen = self.remembered().get(ACCOUNT)
                # The head of an account that was refused must not replace the one that it lacks.
                if not self._broken and (seen is None or self.people.has_head(seen[0])):
                    self.people.sync()
                    self.remember_scored(self.people.head, (), self.people.synced)
            self.people.close_file()
            self.people = None
        self._db.close()

    def scored_people(self) -> ScoredPeople:
        """The account of scored people, opened on first use."""
        if self.people is None:
            if self.people_file is None:
                raise OperatorError("this ledger has no account of scored people beside it")
            is_there = self.people_file.is_file()
            self.people = ScoredPeople.open(self.people_file, self.party, self.secret)
            seen = self.remembered().get(ACCOUNT)
            if is_there and seen is not None:  # a loss of power takes entries, never the file
                self.people.redo(self.unsynced(), seen[0])
        return self.people

    def count_people(self) -> None:
        """Enter how far the account of scored people has come, so that the next head covers it."""
        if (people := self.known_people()) is not None:
            self._append([PeopleCounted(head=people.head)])

    def known_people(self) -> ScoredPeople | None:
        """The account of scored people, or None if nobody has been scored."""
        if self.people is None and self.people_file is not None and self.people_file.is_file():
            return self.scored_people()
        return self.people

    @property
    def books(self) -> Books:
        """Caps, reserves and spends; callers must not change them."""
        return self._books

    def unlock(
        self, secret: LedgerSecret, *, replace: bool = False, mu2_units_scored: int = 0
    ) -> None:
        """Allow writing. The first secret, or the replacement of a lost one, becomes an entry.

        That entry moves a ledger of format 1 to format 2; earlier entries stay unchanged. With a
        lost secret `mu2_units_scored` keeps what noised scores have cost.
        """
        known = self._books.secret_check
        if known is not None and known != secret.check() and not replace:
            raise OperatorError(
                "the ledger was made with a different secret: put its own ledger.secret back"
            )
        self._secret = secret
        self._append([SecretFixed(check=secret.check(), mu2_units_scored=mu2_units_scored)])

    @property
    def secret(self) -> LedgerSecret:
        """The secret that hides this ledger's entries; OperatorError if it is read-only."""
        if self._secret is None:
            raise OperatorError("the ledger was opened without its secret, to be read only")
        return self._secret

    def fix_cap(self, dataset: str, cap: Budget, pure_slots: tuple[int, ...] = ()) -> None:
        """Fix the lifetime cap of a data set; another cap after its first run is refused."""
        self._append([CapFixed(dataset=dataset, cap=cap, pure_slots=pure_slots)])

    def recognise(
        self,
        dataset: str,
        rows: bytes,
        sketched: Callable[[LedgerSecret], IdSketch],
        *,
        apart_from: Collection[str] = (),
    ) -> None:
        """Refuse ids that another data set of this ledger holds, unless the caller names that one.

        `rows` is a fingerprint: if the rows are those of the last time, no new sketch is made. A
        named pair stays named. The sketch covers all rows ever seen under this data set's name.
        """
        mark, known = self.secret.fingerprint(rows), sketches_in(self._db, self.secret.check())
        last_mark, ids = known.pop(dataset, ("", IdSketch()))
        if last_mark != mark:
            ids = ids.joined(sketched(self.secret))
        shares = {other: shared(ids, theirs) for other, (_, theirs) in known.items()}
        confirmed = []
        for other, share in shares.items():
            if share < ASKED_FROM or frozenset((dataset, other)) in self._books.apart:
                continue
            if other not in apart_from:
                raise RefusedError(same_people(dataset, other, share))
            percent = round(100 * share)
            confirmed.append(BudgetsApart(dataset=dataset, other=other, shared_percent=percent))
        self._append(confirmed)
        if last_mark != mark:
            self._write(lambda: store_sketch(self._db, dataset, self.secret.check(), (mark, ids)))

    def reserve(self, reserve: RunReserved) -> None:
        """Reserve the most that a run may spend; refused if the cap does not allow it."""
        self._append([reserve])

    def book(self, releases: Sequence[ReleaseBooked]) -> None:
        """Charge releases, all or none, in one transaction."""
        self._append(releases)

    def booking(self, releases: Sequence[ReleaseBooked]) -> Callable[[], None]:
        """Check and enter releases like `book`; the function returned makes them durable.

        That function may run in another thread. Until it returns, call nothing else of the ledger.
        """
        return self._entered(releases)

    def has_booked(self, dataset: str, release_id: str) -> bool:
        """Whether a release of this data set is booked, with whatever payload."""
        return any(booked.dataset == dataset for booked in self._booked_as(release_id))

    def close_run(self, dataset: str, run: str) -> None:
        """End a run: free its unspent reserve and refuse further releases."""
        self._append([RunSettled(dataset=dataset, run=run)])

    def verify(self) -> None:
        """Read the whole file again: chain, rules, releases and co-signatures, or raise."""
        books, head = folded(self._db)
        if head != self._head or books != self._books:
            raise IntegrityError("the ledger file changed under the open ledger")

    def entries(self) -> Iterator[tuple[LedgerHead, Entry]]:
        """All entries in order, each with the head after it."""
        rows = self._db.execute("SELECT sequence, digest, body FROM entry ORDER BY sequence")
        for sequence, digest, body in rows:
            yield LedgerHead(sequence=sequence, digest=digest), decode(body)

    def openings(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Opening and stored bytes of each entry in order; entries of format 1 have no opening."""
        yield from self._db.execute("SELECT opening, body FROM entry ORDER BY sequence")

    def _append(self, entries: Sequence[Entry]) -> None:
        self._entered(entries)()

    def _entered(self, entries: Sequence[Entry]) -> Callable[[], None]:
        """Check and insert entries in a transaction; the function returned commits it."""
        if self._broken:
            raise OperatorError(
                "an earlier ledger write failed: nothing more may be sent; restart this process"
            )
        undo, head = self._books.copy(), self._head
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for entry in entries:
                head = self._insert(head, entry)
        except Exception as error:
            raise self._undone(undo, error) from error

        def commit() -> None:
            try:
                self._db.execute("COMMIT")
            except Exception as error:
                raise self._undone(undo, error) from error
            self._head = head

        return commit

    def _undone(self, books: Books, error: Exception) -> Exception:
        """Put the books back after an error and return the error to raise."""
        self._books = books
        self._abandon()
        if not isinstance(error, sqlite3.Error):
            return error
        self._broken = True
        return translated(error)

    def _insert(self, head: LedgerHead, entry: Entry) -> LedgerHead:
        if already(self._books, entry) or self._stored(entry):
            return head
        entry = in_slot(self._books, entry)
        apply(self._books, entry)
        body = encode(entry)
        opening = self.secret.opening(head.sequence + 1, body)
        head = extend(head, body, opening)
        row = (head.sequence, head.digest, release_id_of(entry), body, opening)
        self._db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", row)
        return head

    def _stored(self, entry: Entry) -> bool:
        """Whether this release is booked already; a release id has one payload, permanently."""
        if not isinstance(entry, ReleaseBooked):
            return False
        for booked in self._booked_as(entry.event.release_id):
            # A digest of format 1 cannot be compared with a keyed one; the price must still agree.
            same = booked.digest == entry.digest or booked.keyed != entry.keyed
            if not same or booked.event != entry.event:
                raise IntegrityError(f"{entry.event.release_id} has another payload in the ledger")
            if booked.dataset == entry.dataset:
                return True
        return False

    def _booked_as(self, release_id: str) -> Iterator[ReleaseBooked]:
        query = "SELECT body FROM entry WHERE release_id = ?"
        for (body,) in self._db.execute(query, (release_id,)).fetchall():
            booked = decode(body)
            assert isinstance(booked, ReleaseBooked)
            yield booked

    def _abandon(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
