"""The account of scored people: who was scored, how often, and with how many models.

It owns what a query counts and whom it grants; the file is in scored_file.py. It knows no score, no
id and no message. A person is a keyed hash of the id, so the file does not reveal who was scored.
Every query is one entry of a hash chain, a commitment like those of the ledger; the counts follow
from the entries. The ledger remembers the newest head, so that an older copy of this file is
detected.

*Guarantee.* What the ledger has remembered is counted, also after a loss of power. Repeating a
query changes nothing and returns the same answer; anything else under its number is refused for
everybody. Counts over-count, never under-count: a person in two queries counts twice, although the
same answer reveals nothing new.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_tables import connected
from hdpvfl_mq.privacy.score_limits import (
    Asked,
    Counts,
    Hashes,
    Limits,
    is_about,
    judged,
    nobody,
)
from hdpvfl_mq.privacy.scored_file import ScoredFile
from schemas.privacy import PeopleScored

_LOOKED_UP = 500  # people in one SELECT


class ScoredPeople(ScoredFile):
    """One party's account."""

    @classmethod
    def open(cls, path: str | Path, party: str, secret: LedgerSecret) -> ScoredPeople:
        """Open or create a party's account."""
        has_log = Path(f"{path}-wal").exists()
        connection = connected(path)
        try:
            return cls(connection, party, secret, has_log=has_log)
        except Exception:
            connection.close()
            raise

    @property
    def _secret(self) -> LedgerSecret:
        assert self._known_secret is not None  # a file is read without it, not charged
        return self._known_secret

    def charge(self, asked: Asked, limits: Limits) -> PeopleScored:
        """Count one query; people beyond the limits are marked as refused and not counted.

        It is durable when the ledger has stored what `take_untold` returns.
        """
        self._check_whole()
        known = self._entry(asked.run, asked.query)
        digest, people, model = self._hashed(asked)
        if known is not None:
            is_same = (known.asked, known.model) == (digest, model) and is_about(known, people)
            return known if is_same else nobody(known, digest, len(people))
        counts = self._counts(people, int.from_bytes(model, "little", signed=True))
        refused, reason = judged(counts, asked.mu2_units, limits)
        return self._enter(asked, people, refused, reason)

    def charge_again(self, asked: Asked, limits: Limits, refused: bytes, reason: str) -> bool:
        """Count a query of a journal that was granted so, if a loss of power took its entry.

        Returns whether it did. OperatorError if somebody in it is beyond the limits by now,
        IntegrityError if its number was counted for another answer: it may not be sent.
        """
        self._check_whole()
        known = self._entry(asked.run, asked.query)
        digest, people, model = self._hashed(asked)
        was_refused = unpack_marks(refused, len(people))
        if known is not None:
            is_same = (known.asked, known.model, known.refused) == (digest, model, refused)
            if not was_refused.all() and not (is_same and is_about(known, people)):
                raise IntegrityError(
                    f"the answers to query {asked.query} of {asked.run} differ between this "
                    "journal and the account of scored people; keep both files"
                )
            return False
        counts = self._counts(people, int.from_bytes(model, "little", signed=True))
        beyond, why = judged(counts, asked.mu2_units, limits)
        if (beyond & ~was_refused).any():
            raise OperatorError(
                f"query {asked.query} of {asked.run} was granted and not counted before the power "
                f"failed, and may not be granted any more ({why}): raise the limit, or leave the "
                "run with 'hdpvfl stop'"
            )
        self._enter(asked, people, was_refused, reason)
        return True

    def _check_whole(self) -> None:
        if self._broken:
            raise OperatorError("the account of scored people failed before; nothing may be sent")

    def _hashed(self, asked: Asked) -> tuple[bytes, Hashes, bytes]:
        """What an entry says of a query: digest of its places, people, model."""
        people = np.frombuffer(self._secret.id_hashes(asked.ids), dtype="<i8").astype(np.int64)
        return hashlib.sha256(asked.places).digest(), people, self._secret.model(asked.model)

    def _enter(
        self, asked: Asked, people: Hashes, refused: NDArray[np.bool_], reason: str
    ) -> PeopleScored:
        entry = PeopleScored(
            run=asked.run,
            query=asked.query,
            model=self._secret.model(asked.model),
            asked=hashlib.sha256(asked.places).digest(),
            people=people[~refused].astype("<i8").tobytes(),
            refused=pack_marks(refused) if refused.any() else b"",
            reason=reason,
            mu2_units=asked.mu2_units,
        )
        body = entry.model_dump_json().encode()
        opening = self._secret.opening(self.head.sequence + 1, b"scored" + body)
        self._insert([(entry, body, opening)])
        if self._is_much_unsynced():
            self.sync()
        return entry

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
