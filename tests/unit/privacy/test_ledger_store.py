"""The ledger file: caps, reserves, bookings, its lock, its chain, and copies of it."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.privacy import Budget, Cosignature, LedgerHead, ReleaseBooked, RunReserved, SpendEvent

CAP = Budget(epsilon=1.0, delta=0.01)
# mu^2 of the cap is 0.2835 units of 2^40: two runs of this size fit, three do not.
HALF = int(0.14 * 2**40)


def reserve(
    run: str, mu2: int = HALF, *, exact: bool = False, dataset: str = "rows"
) -> RunReserved:
    return RunReserved(
        dataset=dataset, run=run, mu2_units=mu2, tau_units=1000, exact=exact, fingerprint="f"
    )


def booking(
    run: str,
    round_: int = 0,
    mu2: int = HALF // 4,
    *,
    digest: int = 1,
    exact: bool = False,
    dataset: str = "rows",
) -> ReleaseBooked:
    event = SpendEvent(
        release_id=f"{run}/bank/score/{round_}",
        round=round_,
        mechanism="exact" if exact else "lattice_gaussian",
        mu2_units=0 if exact else mu2,
        tau_units=10,
    )
    return ReleaseBooked(dataset=dataset, run=run, event=event, digest=bytes([digest]) * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    opened = Ledger.open(path, "bank")
    opened.fix_cap("rows", CAP)
    return opened


def test_nothing_before_a_cap(path: Path) -> None:
    fresh = Ledger.open(path, "bank")
    with pytest.raises(RefusedError, match="fix a cap"):
        fresh.reserve(reserve("r1"))
    with pytest.raises(RefusedError):
        fresh.book([booking("r1")])
    assert fresh.head().sequence == 0


def test_a_cap_may_change_until_the_first_run(ledger: Ledger) -> None:
    ledger.fix_cap("rows", CAP)
    ledger.fix_cap("rows", Budget(epsilon=2.0, delta=0.01))
    ledger.fix_cap("rows", CAP)
    ledger.reserve(reserve("r1"))
    with pytest.raises(RefusedError, match=r"epsilon = 1, delta = 0\.01"):
        ledger.fix_cap("rows", Budget(epsilon=2.0, delta=0.01))
    ledger.fix_cap("rows", CAP)


def test_reserves_of_all_runs_stay_within_the_cap(ledger: Ledger) -> None:
    ledger.reserve(reserve("r1"))
    ledger.reserve(reserve("r2"))
    with pytest.raises(RefusedError, match="above its cap"):
        ledger.reserve(reserve("r3"))
    assert ledger.head().sequence == 3
    ledger.fix_cap("other", CAP)
    ledger.reserve(reserve("r3", dataset="other"))


def test_closing_frees_only_what_was_never_spent(ledger: Ledger) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1", 0), booking("r1", 1)])
    ledger.close_run("rows", "r1")
    assert ledger.books.held("rows").mu2_units == 2 * (HALF // 4)
    ledger.reserve(reserve("r2", HALF))
    ledger.book([booking("r2", t) for t in range(4)])
    ledger.close_run("rows", "r2")
    with pytest.raises(RefusedError):
        ledger.reserve(reserve("r3", HALF))  # 0.07 + 0.14 + 0.14 is above 0.2835
    ledger.reserve(reserve("r4", HALF // 2))


def test_a_run_cannot_exceed_its_reserve(ledger: Ledger) -> None:
    ledger.reserve(reserve("r1"))
    before = ledger.head()
    with pytest.raises(RefusedError, match="exceed the reserve"):
        ledger.book([booking("r1", t) for t in range(5)])
    assert ledger.head() == before  # all or none
    assert ledger.books.spent("rows") == Spent()
    ledger.book([booking("r1", t) for t in range(4)])
    with pytest.raises(RefusedError):
        ledger.book([booking("r1", 4, mu2=4)])


def test_booking_again_changes_nothing_and_another_payload_is_a_contradiction(
    ledger: Ledger,
) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1")])
    head = ledger.head()
    ledger.book([booking("r1")])
    ledger.book([booking("r1"), booking("r1")])
    ledger.reserve(reserve("r1"))
    assert ledger.head() == head
    with pytest.raises(IntegrityError, match="another payload"):
        ledger.book([booking("r1", digest=2)])
    with pytest.raises(IntegrityError):
        ledger.book([booking("r1", mu2=1)])
    with pytest.raises(RefusedError, match="new run id"):
        ledger.reserve(reserve("r1", mu2=5))
    assert ledger.head() == head
    ledger.verify()


def test_one_release_may_be_charged_to_two_data_sets_once_each(ledger: Ledger) -> None:
    ledger.fix_cap("scored", CAP)
    ledger.reserve(reserve("r1"))
    ledger.reserve(reserve("r1", dataset="scored"))
    both = [booking("r1"), booking("r1", dataset="scored")]
    ledger.book(both)
    ledger.book(both)
    assert ledger.books.spent("rows") == ledger.books.spent("scored")
    with pytest.raises(IntegrityError):
        ledger.book([booking("r1", digest=2, dataset="scored")])


def test_a_closed_run_releases_nothing_more(ledger: Ledger) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1")])
    ledger.close_run("rows", "r1")
    ledger.close_run("rows", "r1")
    ledger.book([booking("r1")])  # what is booked is booked
    with pytest.raises(RefusedError, match="closed"):
        ledger.book([booking("r1", 1)])
    with pytest.raises(RefusedError, match="no reserve"):
        ledger.close_run("rows", "never")


def test_exact_values_need_a_reserve_that_names_them_and_are_infinite_for_ever(
    ledger: Ledger,
) -> None:
    ledger.reserve(reserve("r1"))
    with pytest.raises(RefusedError, match="exact"):
        ledger.book([booking("r1", exact=True)])
    ledger.reserve(reserve("r2", 0, exact=True))
    ledger.book([booking("r2", exact=True)])
    ledger.close_run("rows", "r2")
    assert math.isinf(ledger.books.epsilon_spent("rows"))


def test_it_outlives_the_process(path: Path, ledger: Ledger) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1", t) for t in range(3)])
    head, spent = ledger.head(), ledger.books.spent("rows")
    ledger.close_file()
    again = Ledger.open(path, "bank")
    assert again.head() == head
    assert again.books.spent("rows") == spent
    assert [entry.kind for _, entry in again.entries()] == ["cap", "reserve", *["spend"] * 3]
    again.verify()


def test_a_second_opener_is_refused(path: Path, ledger: Ledger) -> None:
    with pytest.raises(OperatorError, match="another process"):
        Ledger.open(path, "bank")
    ledger.fix_cap("rows", CAP)
    ledger.close_file()
    Ledger.open(path, "bank").close_file()


def test_another_partys_file_is_refused(path: Path, ledger: Ledger) -> None:
    ledger.close_file()
    with pytest.raises(OperatorError, match="belongs to bank"):
        Ledger.open(path, "shop")


def test_an_older_copy_is_refused_by_a_head_a_peer_cosigned(
    path: Path, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1", 0)])
    ledger.close_file()
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    newer = Ledger.open(path, "bank")
    newer.book([booking("r1", 1)])
    head = newer.head()
    newer.check_restored({"shop": head})
    newer.close_file()
    older = Ledger.open(backup, "bank")
    with pytest.raises(IntegrityError, match="older copy"):
        older.check_restored({"shop": head})
    older.book([booking("r1", 2)])  # and a copy that went another way is refused too
    with pytest.raises(IntegrityError, match="another entry"):
        older.check_restored({"shop": head})
    older.check_restored({"shop": LedgerHead(sequence=0, digest=bytes(32))})


def test_cosignatures_are_kept_newest_first_and_belong_to_the_chain(
    path: Path, ledger: Ledger
) -> None:
    first = ledger.head()
    ledger.reserve(reserve("r1"))
    second = ledger.head()
    for head in (second, first):
        ledger.record(Cosignature(peer="shop", head=head, signature=bytes(64)))
    assert [kept.head for kept in ledger.cosignatures()] == [second]
    alien = LedgerHead(sequence=1, digest=b"x" * 32)
    with pytest.raises(IntegrityError):
        ledger.record(Cosignature(peer="shop", head=alien, signature=bytes(64)))
    ledger.close_file()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("DELETE FROM entry WHERE sequence = 2")
    raw.close()
    with pytest.raises(IntegrityError, match="co-signed"):
        Ledger.open(path, "bank")


@pytest.mark.parametrize(
    "tamper",
    [
        "UPDATE entry SET body = replace(CAST(body AS TEXT), '1000', '1001') WHERE sequence = 2",
        "UPDATE entry SET body = CAST(replace(CAST(body AS TEXT), '38482906972', '1') AS BLOB)",
        "UPDATE entry SET digest = zeroblob(32) WHERE sequence = 3",
        "UPDATE entry SET release_id = 'r1/bank/score/9' WHERE sequence = 3",
        "UPDATE entry SET release_id = NULL",
        "DELETE FROM entry WHERE sequence = 2",
        "DELETE FROM entry WHERE sequence = 1",
        "UPDATE entry SET body = zeroblob(10) WHERE sequence = 1",
    ],
)
def test_a_rewritten_file_is_noticed(path: Path, ledger: Ledger, tamper: str) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1", 0), booking("r1", 1)])
    ledger.close_file()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute(tamper)
    raw.close()
    with pytest.raises(IntegrityError):
        Ledger.open(path, "bank")


def test_a_file_that_is_no_ledger_is_kept_and_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database at all" * 300)
    with pytest.raises(IntegrityError, match="damaged"):
        Ledger.open(path, "bank")


def test_an_unwritable_place_is_the_operators_business(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OperatorError, match="cannot be opened"):
        Ledger.open(tmp_path / "file" / "ledger.db", "bank")


def test_after_a_store_error_nothing_goes_on() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    ledger = Ledger(connection, "bank")
    ledger.fix_cap("rows", CAP)
    ledger.reserve(reserve("r1"))
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(OperatorError, match="nothing may be sent"):
        ledger.book([booking("r1")])
    connection.execute("PRAGMA query_only = OFF")
    with pytest.raises(OperatorError, match="failed before"):
        ledger.book([booking("r1")])
    assert Ledger(connection, "bank").books.spent("rows") == Spent()  # a restart finds nothing half


def test_the_file_is_the_owners_alone(path: Path, ledger: Ledger) -> None:
    assert path.stat().st_mode & 0o077 == 0


def test_a_ledger_from_before_heads_were_signed_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, "shop").close_file()
    with closing(sqlite3.connect(path)) as old:
        old.execute("DROP TABLE remembered")
        old.execute(
            "CREATE TABLE remembered (peer TEXT PRIMARY KEY, sequence INTEGER NOT NULL,"
            " digest BLOB NOT NULL)"
        )
        old.execute("INSERT INTO remembered VALUES ('bank', 3, zeroblob(32))")
        old.commit()
    ledger = Ledger.open(path, "shop")
    assert ledger.remembered() == {}
    ledger.remember("bank", LedgerHead(sequence=4, digest=bytes(32)), bytes(64))
    assert set(ledger.remembered()) == {"bank"}
