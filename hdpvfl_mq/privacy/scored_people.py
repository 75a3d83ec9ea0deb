"""The account of scored people: who was scored, how often, and with how many models.

It owns the file and its rules; it knows no score, no id and no message. A person is a keyed hash of
the id, so the file does not reveal who was scored. Every query is one entry of a hash chain, a
commitment like those of the ledger; the counts follow from the entries. The ledger remembers the
newest head, so that an older copy of this file is detected.

*Guarantee.* A call that returns is on disk. Repeating a query changes nothing and returns the same
answer; anything else under its number is refused for everybody. Counts over-count, never
under-count: a person in two queries counts twice, although the same answer reveals nothing new.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.durable import make_exclusive
from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, extend
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_tables import connected, translated
from hdpvfl_mq.privacy.score_limits import (
    Asked,
    Counts,
    Hashes,
    Limits,
    is_about,
    judged,
    nobody,
)
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
_LOOKED_UP = 500  # people in one SELECT


class ScoredPeople:
    """One party's account; the only connection to its file."""

    def __init__(self, connection: sqlite3.Connection, party: str, secret: LedgerSecret) -> None:
        """Take over a connection with `isolation_level=None` and check its chain."""
        self._db, self._secret, self._broken = connection, secret, False
        try:
            make_exclusive(connection)
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            _claim(connection, party, secret.check())
            connection.execute("COMMIT")
            self.head = self._chain()
        except sqlite3.Error as error:
            raise translated(error) from error

    @classmethod
    def open(cls, path: str | Path, party: str, secret: LedgerSecret) -> ScoredPeople:
        """Open or create a party's account.

        After a kill its log is still there. Pages of the log would make an older copy of the file
        look like the newest, so its counts are then checked too.
        """
        has_log = Path(f"{path}-wal").exists()
        connection = connected(path)
        try:
            account = cls(connection, party, secret)
            if has_log:
                account.verify()
            return account
        except Exception:
            connection.close()
            raise

    def close_file(self) -> None:
        """Close the file and release its lock."""
        self._db.close()

    def charge(self, asked: Asked, limits: Limits) -> PeopleScored:
        """Count one query; people beyond the limits are marked as refused and not counted."""
        if self._broken:
            raise OperatorError("the account of scored people failed before; nothing may be sent")
        known = self._entry(asked.run, asked.query)
        digest = hashlib.sha256(asked.places).digest()
        people = np.frombuffer(self._secret.id_hashes(asked.ids), dtype="<i8").astype(np.int64)
        model = self._secret.model(asked.model)
        if known is not None:
            is_same = (known.asked, known.model) == (digest, model) and is_about(known, people)
            return known if is_same else nobody(known, digest, len(people))
        counts = self._counts(people, int.from_bytes(model, "little", signed=True))
        refused, reasons = judged(counts, asked.mu2_units, limits)
        entry = PeopleScored(
            run=asked.run,
            query=asked.query,
            model=model,
            asked=digest,
            people=people[~refused].astype("<i8").tobytes(),
            refused=np.packbits(refused).tobytes() if refused.any() else b"",
            reason=reasons,
            mu2_units=asked.mu2_units,
        )
        try:
            self._db.execute("BEGIN IMMEDIATE")
            head = self._insert(entry)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._broken = True
            raise translated(error) from error
        self.head = head
        return entry

    def last(self, run: str) -> PeopleScored | None:
        """The newest query of a run."""
        row = self._db.execute(
            "SELECT body FROM entry WHERE run = ? ORDER BY query DESC LIMIT 1", (run,)
        ).fetchone()
        return None if row is None else _decoded(row[0])

    def check_restored(self, head: LedgerHead) -> None:
        """Refuse a file that is older than, or differs from, the head that the ledger remembers."""
        row = self._db.execute(
            "SELECT digest FROM entry WHERE sequence = ?", (head.sequence,)
        ).fetchone()
        if row is None:
            raise IntegrityError(
                f"the account of scored people ends at entry {self.head.sequence}, the ledger has "
                f"seen entry {head.sequence}: it is an older copy. Put the newest scored.db back"
            )
        if row[0] != head.digest:
            raise IntegrityError(f"the account of scored people has another entry {head.sequence}")

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

    # -- one query ----------------------------------------------------------------------------

    def _counts(self, people: Hashes, model: int) -> Counts:
        """Each person's queries so far, models after this query, and mu^2 so far."""
        queries, models, cost = Counter[int](), Counter[int](), Counter[int]()
        for part in chunks(len(people), _LOOKED_UP):
            some = people[part].tolist()
            marks = ",".join("?" * len(some))
            for person, number, mu2_units in self._db.execute(
                f"SELECT hash, queries, mu2_units FROM person WHERE hash IN ({marks})",  # noqa: S608 - marks
                some,
            ):
                queries[person], cost[person] = number, mu2_units
            models.update(
                dict(
                    self._db.execute(
                        f"SELECT hash, count(*) FROM met WHERE hash IN ({marks})"  # noqa: S608 - marks
                        " AND model != ? GROUP BY hash",
                        (*some, model),
                    )
                )
            )
        listed = people.tolist()
        return Counts(
            np.array([queries[person] for person in listed], dtype=np.int64),
            np.array([models[person] + 1 for person in listed], dtype=np.int64),
            np.array([cost[person] for person in listed], dtype=np.int64),
        )

    def _insert(self, entry: PeopleScored) -> LedgerHead:
        body = entry.model_dump_json().encode()
        opening = self._secret.opening(self.head.sequence + 1, b"scored" + body)
        head = extend(self.head, body, opening)
        row = (head.sequence, head.digest, entry.run, entry.query, body, opening)
        self._db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        people = np.frombuffer(entry.people, dtype="<i8").tolist()
        model = int.from_bytes(entry.model, "little", signed=True)
        self._db.executemany(_COUNT, [(person, entry.mu2_units) for person in people])
        self._db.executemany(
            "INSERT OR IGNORE INTO met VALUES (?, ?)", [(person, model) for person in people]
        )
        return head

    # -- what is stored -----------------------------------------------------------------------

    def _entry(self, run: str, query: int) -> PeopleScored | None:
        row = self._db.execute(
            "SELECT body FROM entry WHERE run = ? AND query = ?", (run, query)
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


def cost_in(path: Path) -> int:
    """The most that noised scores have cost one person, from a file whose secret is lost."""
    connection = connected(path)
    try:
        return int(connection.execute(_MOST).fetchone()[0])
    except sqlite3.Error as error:
        raise translated(error) from error
    finally:
        connection.close()


def _claim(connection: sqlite3.Connection, party: str, check: bytes) -> None:
    row = connection.execute("SELECT party, secret FROM owner").fetchone()
    if row is None:
        connection.execute("INSERT INTO owner VALUES (?, ?)", (party, check))
    elif row[0] != party:
        raise OperatorError(f"this account of scored people belongs to {row[0]}")
    elif row[1] != check:
        raise OperatorError(
            "the account of scored people is kept under another secret: put the ledger.secret "
            "back that it was made with; if that is lost, see 'hdpvfl ledger new-secret'"
        )


def _decoded(body: bytes) -> PeopleScored:
    try:
        return PeopleScored.model_validate_json(body)
    except ValueError as broken:
        raise IntegrityError("an entry of the account of scored people cannot be read") from broken
