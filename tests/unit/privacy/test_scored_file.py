"""The file of scored people: what is synced, and what the ledger enters again."""

from __future__ import annotations

import shutil

import pytest

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.privacy import scored_file
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from tests.unit.privacy.test_scored_people import LIMITS, SECRET, account, asked


def test_entries_that_were_lost_are_entered_again_and_counted_once():
    whole, torn = account(), account()
    whole.charge(asked(0, "ada"), LIMITS)
    torn.charge(asked(0, "ada"), LIMITS)
    whole.charge(asked(1, "ada", "bob"), LIMITS)
    untold = whole.take_untold()
    assert [sequence for sequence, _, _ in untold] == [1, 2]
    torn.redo(untold, whole.head)
    assert torn.head == whole.head
    assert torn.totals() == whole.totals()
    torn.redo(untold, whole.head)
    assert torn.totals() == whole.totals()
    torn.verify()


def test_an_older_copy_than_the_ledger_can_repair_is_left_as_it_is():
    whole, old, other = account(), account(), account()
    for query in range(3):
        whole.charge(asked(query, "ada", run=f"run-{query}"), LIMITS)
    other.charge(asked(0, "eve"), LIMITS)
    _, *newest = whole.take_untold()
    for copy in (old, other):  # an entry is missing in between; another entry is there
        before = copy.head
        copy.redo(newest, whole.head)
        assert copy.head == before
        with pytest.raises(IntegrityError):
            copy.check_restored(whole.head)


@pytest.mark.parametrize(("count", "size"), [(3, 2**30), (10**9, 500)])
def test_the_ledger_holds_few_entries_and_bytes(tmp_path, monkeypatch, count, size):
    monkeypatch.setattr(scored_file, "UNSYNCED_MAX", count)
    monkeypatch.setattr(scored_file, "UNSYNCED_BYTES_MAX", size)
    people = ScoredPeople.open(tmp_path / "scored.db", "shop", SECRET)
    for query in range(10):
        people.charge(asked(query, f"p{query}"), LIMITS)
        assert people.head.sequence - people.synced <= 3
    assert people.synced > 0
    people.close_file()


def test_what_is_synced_is_in_the_file_without_its_log(tmp_path):
    people = ScoredPeople.open(tmp_path / "scored.db", "shop", SECRET)
    people.charge(asked(0, "ada"), LIMITS)
    assert people.synced == 0
    people.sync()
    assert people.synced == 1
    shutil.copy(tmp_path / "scored.db", tmp_path / "copy.db")
    again = ScoredPeople.open(tmp_path / "copy.db", "shop", SECRET)
    assert again.head == people.head
    again.close_file()
    people.close_file()
