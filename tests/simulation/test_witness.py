"""A ledger restored from an older copy is refused before its first release."""

from __future__ import annotations

import sqlite3

import pytest

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.privacy.ledger_store import Ledger
from tests.federation import Federation, manifest


def copied(ledger: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    copy.deserialize(ledger.serialize())
    return copy


def second_run(ledgers: dict[str, sqlite3.Connection]) -> Federation:
    federation = Federation(manifest(run="second-run"))
    federation.ledgers = ledgers
    return federation


def releases_of(federation: Federation, party: str, run: str) -> int:
    entries = Ledger(federation.ledgers[party], party).entries()
    return sum(entry.kind == "spend" and entry.run == run for _, entry in entries)


def test_parties_remember_the_heads_of_each_other():
    federation = Federation()
    federation.simulate()
    head = Ledger(federation.ledgers["shop"], "shop").head()
    for other in ("bank", "telco"):
        assert Ledger(federation.ledgers[other], other).remembered()["shop"] == head


def test_a_second_run_on_the_same_ledgers_adds_up():
    first = Federation()
    first.simulate()
    second = second_run(first.ledgers)
    second.simulate()
    assert set(second.outcomes.values()) == {"completed"}
    books = Ledger(second.ledgers["shop"], "shop").books
    assert len(books.runs) == 2
    assert books.epsilon_spent("people") > 1.2


def test_an_older_copy_is_refused_and_releases_nothing():
    first = Federation()
    old = copied(Ledger(first.ledgers["shop"], "shop")._db)
    first.simulate()
    second = second_run({**first.ledgers, "shop": old})
    with pytest.raises(IntegrityError, match="older copy"):
        second.simulate()
    assert releases_of(second, "shop", "second-run") == 0


def test_a_ledger_of_the_same_length_with_another_history_is_refused():
    first, other = Federation(), Federation(manifest(seed=8))
    first.simulate()
    other.simulate()
    second = second_run({**first.ledgers, "shop": other.ledgers["shop"]})
    with pytest.raises(IntegrityError, match="another entry"):
        second.simulate()
