"""The ledger file: caps, reserves, bookings, its lock, its chain, and copies of it."""

from __future__ import annotations

import hashlib
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, encode, extend
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.ledger_tables import connected
from schemas.privacy import (
    Budget,
    CapFixed,
    Cosignature,
    LedgerHead,
    ReleaseBooked,
    RunReserved,
    SpendEvent,
)

SECRET = LedgerSecret(b"s" * 32)
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
    opened = Ledger.open(path, "bank", SECRET)
    opened.fix_cap("rows", CAP)
    return opened


def test_nothing_before_a_cap(path: Path) -> None:
    fresh = Ledger.open(path, "bank", SECRET)
    with pytest.raises(RefusedError, match="fix a cap"):
        fresh.reserve(reserve("r1"))
    with pytest.raises(RefusedError):
        fresh.book([booking("r1")])
    assert fresh.head().sequence == 1  # its secret


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
    assert ledger.head().sequence == 4
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
    again = Ledger.open(path, "bank", SECRET)
    assert again.head() == head
    assert again.books.spent("rows") == spent
    kinds = [entry.kind for _, entry in again.entries()]
    assert kinds == ["secret", "cap", "reserve", *["spend"] * 3]
    again.verify()


def test_a_second_opener_is_refused(path: Path, ledger: Ledger) -> None:
    with pytest.raises(OperatorError, match="another process"):
        Ledger.open(path, "bank", SECRET)
    ledger.fix_cap("rows", CAP)
    ledger.close_file()
    Ledger.open(path, "bank", SECRET).close_file()


def test_another_partys_file_is_refused(path: Path, ledger: Ledger) -> None:
    ledger.close_file()
    with pytest.raises(OperatorError, match="belongs to bank"):
        Ledger.open(path, "shop", SECRET)


def test_an_older_copy_is_refused_by_a_head_a_peer_cosigned(
    path: Path, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.reserve(reserve("r1"))
    ledger.book([booking("r1", 0)])
    ledger.close_file()
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    newer = Ledger.open(path, "bank", SECRET)
    newer.book([booking("r1", 1)])
    head = newer.head()
    newer.check_restored({"shop": head})
    newer.close_file()
    older = Ledger.open(backup, "bank", SECRET)
    with pytest.raises(IntegrityError, match="older copy"):
        older.check_restored({"shop": head})
    older.book([booking("r1", 2)])  # and a copy that went another way is refused too
    with pytest.raises(IntegrityError, match="different entry"):
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
    stored = ledger._db.execute("SELECT peer, sequence, digest FROM cosignature").fetchall()
    assert stored == [("shop", second.sequence, second.digest)]
    alien = LedgerHead(sequence=1, digest=b"x" * 32)
    with pytest.raises(IntegrityError):
        ledger.record(Cosignature(peer="shop", head=alien, signature=bytes(64)))
    ledger.close_file()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("DELETE FROM entry WHERE sequence = 3")
    raw.close()
    with pytest.raises(IntegrityError, match="co-signed"):
        Ledger.open(path, "bank", SECRET)


@pytest.mark.parametrize(
    "tamper",
    [
        "UPDATE entry SET body = replace(CAST(body AS TEXT), '1000', '1001') WHERE sequence = 3",
        "UPDATE entry SET body = CAST(replace(CAST(body AS TEXT), '38482906972', '1') AS BLOB)",
        "UPDATE entry SET digest = zeroblob(32) WHERE sequence = 4",
        "UPDATE entry SET release_id = 'r1/bank/score/9' WHERE sequence = 4",
        "UPDATE entry SET opening = zeroblob(32) WHERE sequence = 4",
        "UPDATE entry SET opening = zeroblob(99) WHERE sequence = 4",
        "UPDATE entry SET opening = 'text' WHERE sequence = 4",
        "UPDATE entry SET opening = NULL WHERE sequence = 5",
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
        Ledger.open(path, "bank", SECRET)


def test_a_file_that_is_no_ledger_is_kept_and_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database at all" * 300)
    with pytest.raises(IntegrityError, match="damaged"):
        Ledger.open(path, "bank", SECRET)


def test_an_unwritable_place_is_the_operators_business(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OperatorError, match="cannot be opened"):
        Ledger.open(tmp_path / "file" / "ledger.db", "bank")


def test_after_a_store_error_nothing_goes_on() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    ledger = Ledger(connection, "bank", SECRET)
    ledger.fix_cap("rows", CAP)
    ledger.reserve(reserve("r1"))
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(OperatorError, match="nothing may be sent"):
        ledger.book([booking("r1")])
    connection.execute("PRAGMA query_only = OFF")
    with pytest.raises(OperatorError, match="write failed"):
        ledger.book([booking("r1")])
    assert (
        Ledger(connection, "bank", SECRET).books.spent("rows") == Spent()
    )  # a restart finds nothing half


def test_the_file_is_the_owners_alone(path: Path, ledger: Ledger) -> None:
    assert path.stat().st_mode & 0o077 == 0


def test_a_ledger_from_before_heads_were_signed_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, "shop", SECRET).close_file()
    with closing(sqlite3.connect(path)) as old:
        old.execute("DROP TABLE remembered")
        old.execute(
            "CREATE TABLE remembered (peer TEXT PRIMARY KEY, sequence INTEGER NOT NULL,"
            " digest BLOB NOT NULL)"
        )
        old.execute("INSERT INTO remembered VALUES ('bank', 3, zeroblob(32))")
        old.commit()
    ledger = Ledger.open(path, "shop", SECRET)
    assert ledger.remembered() == {}
    ledger.remember("bank", LedgerHead(sequence=4, digest=bytes(32)), bytes(64))
    assert set(ledger.remembered()) == {"bank"}


# -- the secret, and ledgers from before there was one ----------------------------------------


def write_format_1(path: Path, entries: list) -> LedgerHead:
    """A ledger as earlier versions left it: no openings, every digest over the entry as it is."""
    head, digest = EMPTY_LEDGER, bytes(32)
    with closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE owner (party TEXT NOT NULL)")
        old.execute("INSERT INTO owner VALUES ('bank')")
        old.execute(
            "CREATE TABLE entry (sequence INTEGER PRIMARY KEY, digest BLOB NOT NULL,"
            " release_id TEXT, body BLOB NOT NULL)"
        )
        for sequence, entry in enumerate(entries, start=1):
            body = entry.model_dump_json(exclude={"keyed"}).encode()
            digest = hashlib.sha256(digest + sequence.to_bytes(8, "big") + body).digest()
            filed = entry.event.release_id if entry.kind == "spend" else None
            old.execute("INSERT INTO entry VALUES (?, ?, ?, ?)", (sequence, digest, filed, body))
            head = LedgerHead(sequence=sequence, digest=digest)
        old.commit()
    return head


OLD = [CapFixed(dataset="rows", cap=CAP), reserve("r1"), booking("r1", 0), booking("r1", 1)]


def test_a_ledger_of_format_1_goes_on_under_a_secret_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    old = write_format_1(path, OLD)
    ledger = Ledger.open(path, "bank", SECRET)
    assert ledger.books.spent("rows").mu2_units == 2 * (HALF // 4)
    assert [entry for _, entry in ledger.entries()][:4] == OLD
    assert [head for head, _ in ledger.entries()][3] == old  # a peer may have co-signed it
    ledger.check_restored({"shop": old})
    assert [entry.kind for _, entry in ledger.entries()][4:] == ["secret"]
    ledger.book([booking("r1", 0), booking("r1", 2)])
    assert [opening is None for opening, _ in ledger.openings()] == [True] * 4 + [False] * 2
    ledger.close_file()
    again = Ledger.open(path, "bank", SECRET)
    again.verify()
    assert again.head().sequence == 6
    assert again._db.execute("PRAGMA user_version").fetchone() == (2,)


def test_an_exact_release_of_format_1_is_known_again_by_its_price(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    exact = booking("r1", exact=True)
    write_format_1(path, [OLD[0], reserve("r1", exact=True), exact])
    ledger = Ledger.open(path, "bank", SECRET)
    head = ledger.head()
    ledger.book([ReleaseBooked(**{**dict(exact), "digest": b"k" * 32, "keyed": True})])
    assert ledger.head() == head


def test_an_entry_without_an_opening_cannot_follow_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, "bank", SECRET).close_file()
    with closing(sqlite3.connect(path)) as raw:
        head = LedgerHead(sequence=1, digest=raw.execute("SELECT digest FROM entry").fetchone()[0])
        body = encode(OLD[0])
        head = extend(head, body, None)
        raw.execute("INSERT INTO entry VALUES (2, ?, NULL, ?, NULL)", (head.digest, body))
        raw.commit()
    with pytest.raises(IntegrityError, match="not a commitment"):
        Ledger.open(path, "bank", SECRET)


def test_without_its_secret_a_ledger_can_be_read_and_not_written(path: Path, ledger) -> None:
    ledger.close_file()
    reader = Ledger.open(path, "bank")
    reader.verify()
    with pytest.raises(OperatorError, match="without its secret"):
        reader.reserve(reserve("r1"))
    assert reader.books.held("rows") == Spent()


def test_another_secret_is_refused(path: Path, ledger: Ledger) -> None:
    head = ledger.head()
    ledger.close_file()
    with pytest.raises(OperatorError, match=r"ledger\.secret"):
        Ledger.open(path, "bank", LedgerSecret(b"t" * 32))
    assert Ledger.open(path, "bank", SECRET).head() == head


def test_a_newer_format_is_refused(path: Path, ledger: Ledger) -> None:
    ledger.close_file()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA user_version = 3")
    with pytest.raises(OperatorError, match="format 3"):
        Ledger.open(path, "bank", SECRET)


def test_no_repr_shows_the_secret() -> None:
    assert "s" * 4 not in repr(SECRET)
    with pytest.raises(ValueError, match="32 bytes"):
        LedgerSecret(b"")


def test_a_ledger_from_a_backup_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "ledger.db"
    path.touch(mode=0o644)
    path.chmod(0o644)
    connected(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
