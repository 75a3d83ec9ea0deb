"""The account of scored people: counts, limits, its chain, and what is noticed."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.score_limits import Asked, Limits
from hdpvfl_mq.privacy.scored_people import ScoredPeople

SECRET = LedgerSecret(bytes(range(32)))
LIMITS = Limits(queries_max=2, models_max=1, mu2_units_max=100)


def account(connection=None, secret=SECRET) -> ScoredPeople:
    connection = connection or sqlite3.connect(":memory:", isolation_level=None)
    return ScoredPeople(connection, "shop", secret)


def asked(query, *names, weights=b"w", run="scores", mu2_units=0) -> Asked:
    ids = [name.encode() for name in names]
    return Asked(run, query, ids, b"".join(ids), weights, mu2_units)


def refused(entry, count):
    if not entry.refused:
        return [False] * count
    return np.unpackbits(np.frombuffer(entry.refused, np.uint8), count=count).astype(bool).tolist()


def test_a_person_is_granted_as_often_as_the_policy_says_in_whatever_run():
    people = account()
    assert refused(people.charge(asked(0, "ada", "bob"), LIMITS), 2) == [False, False]
    assert refused(people.charge(asked(0, "ada", run="later"), LIMITS), 1) == [False]
    third = people.charge(asked(1, "ada", "bob"), LIMITS)
    assert refused(third, 2) == [True, False]
    assert third.reason == ("policy.queries_max = 2: 1 of 2 people have been asked for that often")
    assert people.totals()["people"] == 2
    assert people.totals()["queries_most"] == 2


def test_other_models_count_by_their_weights_whatever_they_are_called():
    people = account()
    people.charge(asked(0, "ada"), LIMITS)
    entry = people.charge(asked(0, "ada", "eve", weights=b"v", run="scores-2"), LIMITS)
    assert refused(entry, 2) == [True, False]
    assert "policy.models_max = 1: 1 of 2 people" in entry.reason
    assert refused(people.charge(asked(1, "ada"), LIMITS), 1) == [False]


def test_a_query_that_comes_again_counts_once_and_may_not_change():
    people = account()
    first = people.charge(asked(0, "ada"), LIMITS)
    head = people.head
    assert people.charge(asked(0, "ada"), LIMITS) == first
    assert people.head == head
    assert people.last("scores") == first
    for other in (asked(0, "bob", "eve"), asked(0, "ada", "eve", weights=b"v")):
        answer = people.charge(other, LIMITS)
        assert refused(answer, 2) == [True, True]
        assert answer.reason == "query 0 of scores has asked for others before"
    same_bytes = replace(asked(0, "ada"), ids=[b"bob"])
    assert refused(people.charge(same_bytes, LIMITS), 1) == [True]
    assert people.head == head
    people.verify()


def test_a_journal_with_another_answer_under_a_counted_number_is_refused():
    """Bug: a number in the account vouched for whatever a journal had granted under it."""
    people = account()
    granted = people.charge(asked(0, "ada", "bob"), LIMITS)
    head = people.head
    assert not people.charge_again(asked(0, "ada", "bob"), LIMITS, granted.refused, granted.reason)
    others = people.charge(asked(0, "ada", "eve"), LIMITS)  # answered for nobody
    assert not people.charge_again(asked(0, "ada", "eve"), LIMITS, others.refused, others.reason)
    same = asked(0, "ada", "bob")
    same_places, same_people = replace(same, ids=[b"ada", b"eve"]), replace(same, places=b"other")
    for journalled in (same_places, same_people, asked(0, "ada", "bob", weights=b"v")):
        with pytest.raises(IntegrityError, match="differ between this journal"):
            people.charge_again(journalled, LIMITS, b"", "")
    people.charge(asked(1, "ada"), LIMITS)
    people.charge(asked(2, "ada", "bob"), LIMITS)  # counted for bob alone
    with pytest.raises(IntegrityError, match="differ between this journal"):
        people.charge_again(asked(2, "ada", "bob"), LIMITS, b"", "")
    assert people.head.sequence == head.sequence + 2
    people.verify()


def test_an_older_copy_below_the_log_of_a_kill_is_noticed(tmp_path):
    """Bug: the log's pages made chain and head the newest, and people were granted again."""
    file, log = tmp_path / "scored.db", tmp_path / "scored.db-wal"
    people = ScoredPeople.open(file, "shop", SECRET)
    people.charge(asked(0, *(f"p{number}" for number in range(4000))), LIMITS)
    people.close_file()
    shutil.copy(file, tmp_path / "backup")
    people = ScoredPeople.open(file, "shop", SECRET)
    people.charge(asked(1, "ada"), LIMITS)
    people.close_file()  # the log is folded into the file
    people = ScoredPeople.open(file, "shop", SECRET)
    people.charge(asked(2, "bob"), LIMITS)
    shutil.copy(log, tmp_path / "log")  # as a kill leaves it
    people.close_file()
    shutil.copy(tmp_path / "log", log)
    shutil.copy(tmp_path / "backup", file)
    for _ in range(2):  # bug: the first refusal removed the log, and the second start went on
        with pytest.raises(IntegrityError, match="do not follow from the account's entries"):
            ScoredPeople.open(file, "shop", SECRET)
        assert not log.exists()


def test_an_account_that_was_found_right_after_a_kill_is_checked_once(tmp_path, monkeypatch):
    file, log = tmp_path / "scored.db", tmp_path / "scored.db-wal"
    people = ScoredPeople.open(file, "shop", SECRET)
    people.charge(asked(0, "ada"), LIMITS)
    for path in (file, log):
        shutil.copy(path, tmp_path / f"killed-{path.name}")
    people.close_file()
    verified, verify = [], ScoredPeople.verify
    monkeypatch.setattr(ScoredPeople, "verify", lambda each: verified.append(verify(each)))
    for _ in range(2):
        again = ScoredPeople.open(tmp_path / "killed-scored.db", "shop", SECRET)
        assert again.totals()["queries"] == 1
        again.close_file()
    assert len(verified) == 1


def test_what_noised_scores_cost_adds_up_by_person():
    people = account()
    for query in range(2):
        people.charge(asked(query, "ada", mu2_units=7), LIMITS)
    people.charge(asked(2, "ada", "bob", mu2_units=7), LIMITS)
    assert people.totals()["mu2_units_most"] == 14  # the refused one is not charged
    people.verify()


def test_noised_scores_stop_at_what_the_lifetime_leaves():
    people, much = account(), Limits(queries_max=100, models_max=1, mu2_units_max=20)
    for query in range(2):
        assert refused(people.charge(asked(query, "ada", mu2_units=9), much), 1) == [False]
    third = people.charge(asked(2, "ada", "bob", mu2_units=9), much)
    assert refused(third, 2) == [True, False]
    assert third.reason == "policy.lifetime: 1 of 2 people have not enough left for a noised score"
    assert people.mu2_units_most() == 18
    disclosed = people.charge(asked(3, "ada"), much)  # a disclosed score is no noised one
    assert refused(disclosed, 1) == [False]


def test_it_survives_a_restart_and_says_nobodys_id(tmp_path):
    path = tmp_path / "scored.db"
    people = ScoredPeople.open(path, "shop", SECRET)
    people.charge(asked(0, "ada-lovelace"), LIMITS)
    head = people.head
    people.close_file()
    again = ScoredPeople.open(path, "shop", SECRET)
    assert again.head == head
    again.verify()
    again.close_file()
    assert b"ada-lovelace" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    with pytest.raises(OperatorError, match="belongs to shop"):
        ScoredPeople.open(path, "telco", SECRET)
    with pytest.raises(OperatorError, match="made with a different secret"):
        ScoredPeople.open(path, "shop", LedgerSecret(bytes(32)))


TAMPERED = {
    "a count": "UPDATE person SET queries = 0",
    "a person": "DELETE FROM person",
    "a model": "DELETE FROM met",
    "a price": "UPDATE person SET mu2_units = 0 WHERE mu2_units > 0",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_counts_that_do_not_follow_from_the_entries_are_noticed(what):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    people = account(connection)
    people.charge(asked(0, "ada", "bob", mu2_units=3), LIMITS)
    people.verify()
    connection.execute(TAMPERED[what])
    with pytest.raises(IntegrityError, match="do not follow"):
        people.verify()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entry SET body = replace(body, 'scores', 'others') WHERE sequence = 1",
        "DELETE FROM entry WHERE sequence = 1",
        "UPDATE entry SET opening = zeroblob(32) WHERE sequence = 2",
    ],
)
def test_an_entry_that_was_changed_breaks_the_chain(change):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    people = account(connection)
    people.charge(asked(0, "ada"), LIMITS)
    people.charge(asked(1, "bob"), LIMITS)
    connection.execute(change)
    with pytest.raises((IntegrityError, OperatorError)):
        account(connection)


def test_an_older_copy_and_another_account_are_refused():
    people, other = account(), account()
    people.charge(asked(0, "ada"), LIMITS)
    seen = people.head
    people.check_restored(seen)
    with pytest.raises(IntegrityError, match="older copy"):
        other.check_restored(seen)
    other.charge(asked(0, "bob"), LIMITS)
    with pytest.raises(IntegrityError, match="entry 1 of the account of scored people differs"):
        other.check_restored(seen)
