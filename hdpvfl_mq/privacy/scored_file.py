"""The file of the account of scored people: its entries, its chain, and counts that follow.

It owns the tables, the chain and what is on disk; the rules are in scored_people.py. A commit to
this file does not wait for the disk: the ledger stores every entry that this file may lose, and
`redo` enters it again after a loss of power. Once `sync` has returned, the ledger may drop it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hdpvfl_mq.durable import make_exclusive
from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, extend
from hdpvfl_mq.privacy.ledger_rows import digest_at
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_tables import UnsyncedEntry, connected, translated
from schemas.privacy import LedgerHead, PeopleScored

_TABLES = (
    "CREATE TABLE IF NOT EXISTS owner (party TEXT NOT NULL, secret BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS entry (sequence INTEGER PRIMARY KEY, digest BLOB NOT NULL,"
    " run TEXT NOT NULL, query INTEGER NOT NULL, body BLOB NOT NULL, opening BLOB NOT NULL,"
    " UNIQUE (run, query))",
    "CREATE TABLE IF NOT EXISTS person (hash INTEGER PRIMARY KEY, queries INTEGER NOT NULL,"
    " mu2_units INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS met (hash INTEGER, model INTEGER, PRIMARY KEY (hash, model))"
    " WITHOUT ROWID",
    # Standings ask for the largest cost, and disclosed scores cost nothing.
    "CREATE INDEX IF NOT EXISTS paid ON person (mu2_units) WHERE mu2_units > 0",
)
_COUNT = (
    "INSERT INTO person VALUES (?, 1, ?) ON CONFLICT (hash) DO UPDATE SET"
    " queries = queries + 1, mu2_units = mu2_units + excluded.mu2_units"
)
_MOST = "SELECT coalesce(max(mu2_units), 0) FROM person WHERE mu2_units > 0"
_UNCHECKED = 1  # PRAGMA user_version: counts and entries may come from different files
# The ledger holds at most so many entries, or bytes, that this file may lose.
UNSYNCED_MAX, UNSYNCED_BYTES_MAX = 256, 2**20


class ScoredFile:
    """One party's file of scored people; the only connection to it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        party: str,
        secret: LedgerSecret | None,
        *,
        has_log: bool = False,
    ) -> None:
        """Take over a connection with `isolation_level=None` and check its chain.

        After a kill the file has a log. Pages of the log would make an older copy of the file look
        like the newest, so its counts are then checked too. Closing removes the log: a mark in the
        file makes every later process check them as well, until they have been found right.
        Without its secret the file can only be read.
        """
        self._db, self._known_secret, self._broken = connection, secret, False
        self._untold: list[UnsyncedEntry] = []  # that the ledger has not been given yet
        self._unsynced_bytes = 0
        try:
            make_exclusive(connection)
            connection.execute("PRAGMA synchronous = NORMAL")  # the ledger has what is not synced
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            _claim(connection, party, None if secret is None else secret.check())
            if has_log:
                connection.execute(f"PRAGMA user_version = {_UNCHECKED}")
            connection.execute("COMMIT")
            self.head = self._chain()
            if connection.execute("PRAGMA user_version").fetchone()[0] == _UNCHECKED:
                self.verify()
                connection.execute("PRAGMA user_version = 0")
        except sqlite3.Error as error:
            raise translated(error) from error
        self.synced = 0  # number of the last entry that this file cannot lose
        self.sync()

    def close_file(self) -> None:
        """Close the file and release its lock."""
        self._db.close()

    # -- what is on disk ----------------------------------------------------------------------

    def sync(self) -> None:
        """Wait until every entry so far is on disk."""
        try:
            busy, logged, moved = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            self._broken = True
            raise translated(error) from error
        if not busy and logged == moved:  # -1 each for a file without a log
            self.synced, self._unsynced_bytes = self.head.sequence, 0

    def take_untold(self) -> list[UnsyncedEntry]:
        """New entries, which the ledger must store before anything is sent because of them."""
        untold, self._untold = self._untold, []
        return untold

    def redo(self, entries: Iterable[UnsyncedEntry], head: LedgerHead) -> None:
        """Enter what a loss of power took from this file; the ledger knows the last head.

        Entries that do not lead from this file's head to that one are left alone: the file is an
        older copy, which `check_restored` refuses.
        """
        missing = [entry for entry in entries if entry[0] > self.head.sequence]
        reached = self.head
        for sequence, body, opening in missing:
            if sequence != reached.sequence + 1:
                return
            reached = extend(reached, body, opening)
        if missing and reached == head:
            self._insert([(_decoded(body), body, opening) for _, body, opening in missing])
            self._untold.clear()  # the ledger has them
            self.sync()

    def check_restored(self, head: LedgerHead) -> None:
        """Refuse a file that is older than, or differs from, the head that the ledger remembers."""
        if head.sequence > self.head.sequence:
            raise IntegrityError(
                f"the account of scored people ends at entry {self.head.sequence}, the ledger has "
                f"seen entry {head.sequence}: it is an older copy. Put the newest scored.db back"
            )
        if not self.has_head(head):
            raise IntegrityError(f"entry {head.sequence} of the account of scored people differs")

    def has_head(self, head: LedgerHead) -> bool:
        """Whether this was the head once; every account was empty once."""
        return digest_at(self._db, head.sequence) == head.digest

    # -- counts -------------------------------------------------------------------------------

    def mu2_units_most(self) -> int:
        """The most that noised scores have cost any one person."""
        return int(self._db.execute(_MOST).fetchone()[0])

    def totals(self) -> dict[str, int]:
        """How many people were scored, and the most queries and models for any one person."""
        people, queries, mu2 = self._db.execute(
            "SELECT count(*), coalesce(max(queries), 0), coalesce(max(mu2_units), 0) FROM person"
        ).fetchone()
        models = self._db.execute(
            "SELECT coalesce(max(n), 0) FROM (SELECT count(*) n FROM met GROUP BY hash)"
        ).fetchone()[0]
        return {
            "people": people,
            "queries": self.head.sequence,
            "queries_most": queries,
            "models_most": models,
            "mu2_units_most": mu2,
        }

    def verify(self) -> None:
        """Read the whole file again and check the chain and its counts, or raise."""
        if self._chain() != self.head:
            raise IntegrityError("the account of scored people changed while it was open")
        queries, cost = Counter[int](), Counter[int]()
        met = set[tuple[int, int]]()
        for entry in self._entries():
            model = int.from_bytes(entry.model, "little", signed=True)
            for person in np.frombuffer(entry.people, dtype="<i8").tolist():
                queries[person] += 1
                cost[person] += entry.mu2_units
                met.add((person, model))
        stored = self._db.execute("SELECT hash, queries, mu2_units FROM person")
        counted = {person: (number, cost[person]) for person, number in queries.items()}
        if {row[0]: row[1:] for row in stored} != counted:
            raise IntegrityError("counts of scored people do not follow from the account's entries")
        if set(self._db.execute("SELECT hash, model FROM met")) != met:
            raise IntegrityError("models of scored people do not follow from the account's entries")

    # -- entries ------------------------------------------------------------------------------

    def _insert(self, entries: Sequence[tuple[PeopleScored, bytes, bytes]]) -> None:
        """Append entries, each with its body and opening, and count them."""
        head = self.head
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for entry, body, opening in entries:
                head = extend(head, body, opening)
                row = (head.sequence, head.digest, entry.run, entry.query, body, opening)
                self._db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
                self._count(entry)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._broken = True
            raise translated(error) from error
        for sequence, (_, body, opening) in enumerate(entries, start=self.head.sequence + 1):
            self._untold.append((sequence, body, opening))
            self._unsynced_bytes += len(body)
        self.head = head

    def _count(self, entry: PeopleScored) -> None:
        people = np.frombuffer(entry.people, dtype="<i8").tolist()
        model = int.from_bytes(entry.model, "little", signed=True)
        self._db.executemany(_COUNT, [(person, entry.mu2_units) for person in people])
        self._db.executemany(
            "INSERT OR IGNORE INTO met VALUES (?, ?)", [(person, model) for person in people]
        )

    def _is_much_unsynced(self) -> bool:
        waiting = self.head.sequence - self.synced
        return waiting >= UNSYNCED_MAX or self._unsynced_bytes >= UNSYNCED_BYTES_MAX

    def _entry(self, run: str, query: int) -> PeopleScored | None:
        row = self._db.execute(
            "SELECT body FROM entry WHERE run = ? AND query = ?", (run, query)
        ).fetchone()
        return None if row is None else _decoded(row[0])

    def last(self, run: str) -> PeopleScored | None:
        """The newest query of a run."""
        row = self._db.execute(
            "SELECT body FROM entry WHERE run = ? ORDER BY query DESC LIMIT 1", (run,)
        ).fetchone()
        return None if row is None else _decoded(row[0])

    def _entries(self) -> Iterator[PeopleScored]:
        for (body,) in self._db.execute("SELECT body FROM entry ORDER BY sequence"):
            yield _decoded(body)

    def _chain(self) -> LedgerHead:
        head = EMPTY_LEDGER
        rows = self._db.execute(
            "SELECT sequence, digest, body, opening FROM entry ORDER BY sequence"
        )
        for sequence, digest, body, opening in rows:
            if not isinstance(body, bytes) or not isinstance(opening, bytes):
                raise IntegrityError(f"entry {sequence} of the account was rewritten")
            head = extend(head, body, opening)
            if (sequence, digest) != (head.sequence, head.digest):
                raise IntegrityError(
                    f"the chain of the account of scored people is broken at entry {head.sequence}"
                )
        return head


def cost_in(
    path: Path, party: str, entries: Iterable[UnsyncedEntry], head: LedgerHead | None
) -> int:
    """The most that noised scores have cost one person, from a file whose secret may be lost.

    What the file has lost with the power is entered first; the ledger has these entries and the
    last head. IntegrityError if the file is an older copy all the same.
    """
    has_log, connection = Path(f"{path}-wal").exists(), connected(path)
    try:
        account = ScoredFile(connection, party, None, has_log=has_log)
        if head is not None:
            account.redo(entries, head)
            account.check_restored(head)
        return account.mu2_units_most()
    finally:
        connection.close()


def _claim(connection: sqlite3.Connection, party: str, check: bytes | None) -> None:
    row = connection.execute("SELECT party, secret FROM owner").fetchone()
    if row is None:
        if check is None:
            raise IntegrityError("the account of scored people does not say whose it is")
        connection.execute("INSERT INTO owner VALUES (?, ?)", (party, check))
    elif row[0] != party:
        raise OperatorError(f"this account of scored people belongs to {row[0]}")
    elif check is not None and row[1] != check:
        raise OperatorError(
            "the account of scored people was made with a different secret: put its own "
            "ledger.secret back; if that is lost, see 'hdpvfl ledger new-secret'"
        )


def _decoded(body: bytes) -> PeopleScored:
    try:
        return PeopleScored.model_validate_json(body)
    except ValueError as broken:
        raise IntegrityError("an entry of the account of scored people cannot be read") from broken
