"""People known again by their ids: what sketches say, and what the ledger does about it."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError, RefusedError
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_sketch import SIZE, IdSketch, shared, sketch
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.privacy import BudgetsApart

SECRET = LedgerSecret(b"s" * 32)


def ids(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def sketched(first: int, last: int) -> IdSketch:
    return sketch(ids(first, last), SECRET)


def test_small_sets_are_compared_exactly() -> None:
    assert shared(sketched(0, 100), sketched(50, 150)) == 0.5
    assert shared(sketched(0, 100), sketched(90, 1090)) == 0.1  # of the smaller one
    assert shared(sketched(0, 100), sketched(100, 200)) == 0.0
    assert shared(sketched(0, 0), sketched(0, 100)) == 0.0


def test_large_sets_are_estimated_from_a_sample_of_the_same_ids() -> None:
    large, other = sketched(0, 200_000), sketched(150_000, 350_000)
    assert len(large.hashes) == SIZE
    assert shared(large, other) == pytest.approx(0.25, abs=0.02)
    assert shared(large, sketched(199_000, 201_000)) == pytest.approx(0.5, abs=0.1)
    assert shared(large, sketched(300_000, 310_000)) == 0.0


def test_a_sketch_does_not_depend_on_the_order_or_on_chunks() -> None:
    parts = sketched(0, 70_000).joined(sketched(70_000, 100_000))
    assert np.array_equal(parts.hashes, sketched(0, 100_000).hashes)
    assert np.array_equal(sketch(ids(0, 9000)[::-1], SECRET).hashes, sketched(0, 9000).hashes)


def test_without_the_secret_no_id_can_be_looked_up() -> None:
    """Neither by a plain hash nor by the sketch of another ledger."""
    known = set(sketched(0, 500).hashes.tolist())
    other = set(sketch(ids(0, 500), LedgerSecret(bytes(32))).hashes.tolist())
    plain = {
        int.from_bytes(hashlib.blake2b(each, digest_size=8).digest(), "little")
        for each in ids(0, 500)
    }
    assert not known & (other | plain)


# -- the ledger -------------------------------------------------------------------------------


def meet(ledger: Ledger, dataset: str, people: tuple[int, int], *apart_from: str) -> None:
    rows = hashlib.sha256(repr(people).encode()).digest()
    ledger.recognise(dataset, rows, lambda secret: sketched(*people), apart_from=apart_from)


@pytest.fixture
def ledger() -> Ledger:
    """One that knows the customers 0 to 999."""
    opened = Ledger(sqlite3.connect(":memory:", isolation_level=None), "bank", SECRET)
    meet(opened, "customers", (0, 1000))
    return opened


def test_the_same_file_under_another_name_is_refused_with_the_remedy(ledger: Ledger) -> None:
    head = ledger.head()
    with pytest.raises(RefusedError) as refused:
        meet(ledger, "clients", (0, 1000))
    for words in ("100%", 'dataset = "customers"', 'budget_apart_from = ["customers"]'):
        assert words in str(refused.value)
    assert ledger.head() == head
    with pytest.raises(RefusedError):  # refusing has not made it known
        meet(ledger, "clients", (0, 1000))


@pytest.mark.parametrize("people", [(0, 120), (900, 5000), (0, 100_000)])
def test_a_part_or_a_larger_file_is_recognised_too(ledger: Ledger, people) -> None:
    with pytest.raises(RefusedError, match="customers has a budget already"):
        meet(ledger, "clients", people)


def test_other_people_and_a_few_in_common_are_nobodys_business(ledger: Ledger) -> None:
    meet(ledger, "suppliers", (5000, 6000))
    meet(ledger, "staff", (950, 1950))  # 5 %
    assert [entry.kind for _, entry in ledger.entries()] == ["secret"]


def test_a_confirmation_by_name_is_recorded_once_and_holds_both_ways(ledger: Ledger) -> None:
    with pytest.raises(RefusedError):
        meet(ledger, "clients", (500, 1500), "suppliers")  # another name confirms nothing
    for _ in range(2):
        meet(ledger, "clients", (500, 1500), "customers")
    meet(ledger, "clients", (500, 1500))  # what is confirmed stays so
    meet(ledger, "customers", (0, 1000))
    confirmed = [entry for _, entry in ledger.entries() if entry.kind == "apart"]
    expected = BudgetsApart(dataset="clients", other="customers", shared_percent=50)
    assert confirmed == [expected]
    ledger.verify()


def test_a_known_name_does_not_help_with_somebody_elses_people(ledger: Ledger) -> None:
    meet(ledger, "suppliers", (5000, 6000))
    with pytest.raises(RefusedError, match="customers has a budget already"):
        meet(ledger, "suppliers", (0, 1000))


def test_a_name_keeps_all_people_that_ever_came_under_it(ledger: Ledger) -> None:
    meet(ledger, "customers", (1000, 2000))
    for people in ((0, 1000), (1000, 2000)):
        with pytest.raises(RefusedError):
            meet(ledger, "clients", people)


def test_the_same_rows_again_are_not_hashed_again(ledger: Ledger) -> None:
    def never(secret: LedgerSecret) -> IdSketch:
        raise AssertionError("hashed again")

    rows = hashlib.sha256(repr((0, 1000)).encode()).digest()
    ledger.recognise("customers", rows, never)


def test_it_outlives_the_process_and_the_file_shows_no_id(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first = Ledger.open(path, "bank", SECRET)
    meet(first, "customers", (0, 1000))
    first.close_file()
    assert sketch(ids(0, 1000), LedgerSecret(bytes(32))).hashes.tobytes() not in path.read_bytes()
    again = Ledger.open(path, "bank", SECRET)
    with pytest.raises(RefusedError):
        meet(again, "clients", (0, 1000))


def test_a_damaged_sketch_is_evidence(ledger: Ledger) -> None:
    ledger._db.execute("UPDATE sketch SET hashes = x'0102'")
    with pytest.raises(IntegrityError, match="damaged"):
        meet(ledger, "clients", (0, 1000))


def test_under_a_new_secret_earlier_people_are_not_known(ledger: Ledger) -> None:
    """Said in the docs: the old sketch is under a secret that nobody has any more."""
    ledger.unlock(LedgerSecret(b"t" * 32), replace=True)
    rows = bytes(32)
    ledger.recognise("clients", rows, lambda secret: sketch(ids(0, 1000), secret))
