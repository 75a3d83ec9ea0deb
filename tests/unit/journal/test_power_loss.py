"""Power loss at any write: what was acknowledged is there, with FULL; with NORMAL it is not."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import sys
from functools import partial

import pytest

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.journal import chain, store
from hdpvfl_mq.privacy import scored_file
from hdpvfl_mq.privacy.ledger_heads import ACCOUNT
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.score_limits import Asked, Limits
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from schemas.privacy import Budget, ReleaseBooked, RunReserved, SpendEvent
from schemas.records import GENESIS, StepRecord, TimerFired
from tests.unit.journal.power import Connection, Disk, PowerFailure

pytestmark = [
    pytest.mark.seconds,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CRASHES, CRASHES_FULL = 200, 2000
# Of two writes at once, each at another write: 120 of these are as many as 200 draws find.
BETWEEN = pytest.mark.parametrize("crashes", [120, pytest.param(2000, marks=pytest.mark.slow)])
SECRET = LedgerSecret(bytes(32))
SPENDS = 6


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """The disk is simulated, but a journal makes its empty file on the real one first."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """A connection that is thrown away while the machine is off complains about the disk.

    pytest would write a traceback of every complaint before it drops it: half of the time here.
    """
    monkeypatch.setattr(sys, "unraisablehook", lambda complaint: None)


def release(number: int) -> ReleaseBooked:
    event = SpendEvent(
        release_id=f"run/shop/share/{number}",
        round=number,
        mechanism="lattice_gaussian",
        mu2_units=10,
        tau_units=1,
    )
    digest = hashlib.sha256(bytes([number])).digest()
    return ReleaseBooked(dataset="people", run="run", event=event, digest=digest)


def prepared() -> Disk:
    """A disk with a ledger that has a cap and a reserve, safely."""
    disk = Disk()
    ledger = Ledger(Connection(disk, "ledger"), "shop", SECRET)
    ledger.fix_cap("people", Budget(epsilon=5.0, delta=0.01))
    ledger.reserve(
        RunReserved(
            dataset="people", run="run", mu2_units=1000, tau_units=100, exact=False, fingerprint=""
        )
    )
    ledger.close_file()
    for file in disk.files.values():
        file.safe, file.pending = file.content(), []
    return disk


def book_until_failure(disk: Disk, synchronous: str) -> list[int]:
    """Book one release after the other; the numbers whose booking returned."""
    acknowledged = []
    try:
        ledger = Ledger(Connection(disk, "ledger", synchronous), "shop", SECRET)
        for number in range(SPENDS):
            ledger.book([release(number)])
            acknowledged.append(number)
    except (PowerFailure, OperatorError):
        pass
    return acknowledged


def copy(disk: Disk, fails_at: int = 0) -> Disk:
    return Disk({n: type(f)(bytearray(f.safe)) for n, f in disk.files.items()}, fails_at)


def failing_writes(dice: random.Random, operations: int, crashes: int) -> list[int]:
    """At which write the power fails; none a second time before all have had their turn."""
    every = range(1, operations + 2)
    turns = -(-crashes // len(every))
    return [at for _ in range(turns) for at in dice.sample(every, len(every))][:crashes]


def lost_spends(crashes: int, synchronous: str) -> int:
    """How many acknowledged spends are gone after that many power failures."""
    dice, start = random.Random(7), prepared()
    whole = copy(start)
    assert book_until_failure(whole, synchronous) == list(range(SPENDS))
    lost = 0
    for _ in range(crashes):
        disk = copy(start, fails_at=dice.randint(1, whole.operations + 1))
        acknowledged = book_until_failure(disk, synchronous)
        ledger = Ledger(Connection(disk.after_failure(dice), "ledger"), "shop", SECRET)
        ledger.verify()
        stored = {e.event.round for _, e in ledger.entries() if isinstance(e, ReleaseBooked)}
        assert stored == set(range(len(stored)))  # none without those before it
        lost += len(set(acknowledged) - stored)
        ledger.book([release(number) for number in range(SPENDS)])  # and it goes on
    return lost


@pytest.mark.parametrize("crashes", [CRASHES, pytest.param(CRASHES_FULL, marks=pytest.mark.slow)])
def test_no_acknowledged_spend_is_lost(crashes):
    assert lost_spends(crashes, "FULL") == 0


def test_the_same_test_fails_with_normal():
    """As many crashes as the quick form has are enough to notice a loss."""
    assert lost_spends(CRASHES, "NORMAL") > 0


def records(count: int):
    rows, head = [], GENESIS
    for index in range(count):
        stored = chain.encode(
            StepRecord(index=index, previous=head, input=TimerFired(timer="t"), effects=())
        )
        head = chain.link(stored)
        rows.append((index, stored, head))
    return rows


def journal_on(disk: Disk, monkeypatch) -> store.Journal:
    monkeypatch.setattr(sqlite3, "connect", lambda path, **_: Connection(disk, path))
    return store.Journal("journal", run="run", party="shop")


def commit_until_failure(disk: Disk, monkeypatch) -> int:
    done = 0
    try:
        journal = journal_on(disk, monkeypatch)
        for row in records(SPENDS):
            journal.commit([row])
            done += 1
    except (PowerFailure, OperatorError):
        pass
    return done


def test_a_committed_step_is_there_after_power_loss(monkeypatch):
    dice, whole = random.Random(8), Disk()
    assert commit_until_failure(whole, monkeypatch) == SPENDS
    for _ in range(CRASHES):
        disk = Disk(fails_at=dice.randint(1, whole.operations + 1))
        done = commit_until_failure(disk, monkeypatch)
        again = journal_on(disk.after_failure(dice), monkeypatch)
        assert len(list(chain.walk(again.records()))) >= done


def release_until_failure(disk: Disk, order: str, monkeypatch) -> list[int]:
    """Write ledger and journal of one turn after the other; the numbers that would be sent."""
    sent = []
    try:
        ledger = Ledger(Connection(disk, "ledger"), "shop", SECRET)
        journal = journal_on(disk, monkeypatch)
        for number, row in enumerate(records(SPENDS)):
            booking = ledger.booking([release(number)])
            writes = [booking, partial(journal.commit, [row])]
            for write in writes if order == "ledger first" else reversed(writes):
                write()
            sent.append(number)
    except (PowerFailure, OperatorError):
        pass
    return sent


@BETWEEN
@pytest.mark.parametrize("order", ["ledger first", "journal first"])
def test_after_power_loss_between_two_writes_no_sent_release_is_missing(
    order, crashes, monkeypatch
):
    """Two writes at once may reach the disk in either order; nothing is sent before both have."""
    dice, start = random.Random(11), prepared()
    whole = copy(start)
    assert release_until_failure(whole, order, monkeypatch) == list(range(SPENDS))
    apart = 0
    for fails_at in failing_writes(dice, whole.operations, crashes):
        disk = copy(start, fails_at)
        sent = release_until_failure(disk, order, monkeypatch)
        left = disk.after_failure(dice)
        ledger = Ledger(Connection(left, "ledger"), "shop", SECRET)
        ledger.verify()
        booked = {e.event.round for _, e in ledger.entries() if isinstance(e, ReleaseBooked)}
        journaled = [index for index, _, _ in journal_on(left, monkeypatch).records()]
        assert set(sent) <= booked & set(journaled)
        lacking = set(journaled) - booked
        assert lacking <= {len(sent)}  # the last turn, which nobody was sent
        apart += bool(lacking)
        ledger.book([release(number) for number in sorted(lacking)])  # as `Node.open` does
        ledger.verify()
    assert (apart > 0) == (order == "journal first")


def test_a_full_disk_at_any_write_stops_the_ledger_and_loses_nothing():
    start = prepared()
    whole = copy(start)
    book_until_failure(whole, "FULL")
    for fails_at in range(1, whole.operations + 1):
        disk = copy(start, fails_at)
        disk.full = True
        acknowledged = book_until_failure(disk, "FULL")
        disk.fails_at = 0  # room again, after a restart
        ledger = Ledger(Connection(disk, "ledger"), "shop", SECRET)
        stored = {e.event.round for _, e in ledger.entries() if isinstance(e, ReleaseBooked)}
        assert set(acknowledged) <= stored, fails_at


def test_after_a_full_disk_a_ledger_books_nothing_more():
    start = prepared()
    whole = copy(start)
    book_until_failure(whole, "FULL")
    disk = copy(start)
    ledger = Ledger(Connection(disk, "ledger"), "shop", SECRET)
    disk.full, disk.fails_at = True, disk.operations + 1
    with pytest.raises(OperatorError, match="nothing may be sent"):
        ledger.book([release(0)])
    disk.fails_at = 0
    with pytest.raises(OperatorError, match="write failed"):
        ledger.book([release(1)])


def test_a_full_disk_at_any_write_stops_the_journal_with_the_reason(monkeypatch):
    whole = Disk()
    commit_until_failure(whole, monkeypatch)
    for fails_at in range(1, whole.operations + 1):
        disk = Disk(fails_at=fails_at)
        disk.full = True
        done = commit_until_failure(disk, monkeypatch)
        disk.fails_at = 0
        again = journal_on(disk, monkeypatch)
        assert len(list(chain.walk(again.records()))) >= done, fails_at


LIMITS = Limits(queries_max=SPENDS, models_max=1, mu2_units_max=0)


def query(number: int) -> Asked:
    return Asked("scores", number, [b"ada", bytes([number])], bytes([number]), b"w")


def score_until_failure(disk: Disk, order: str, monkeypatch) -> list[int]:
    """Charge one query after the other; the numbers whose answers would be sent."""
    sent = []
    try:
        ledger = Ledger(Connection(disk, "ledger"), "shop", SECRET)
        people = ScoredPeople(Connection(disk, "scored", "NORMAL"), "shop", SECRET)
        journal = journal_on(disk, monkeypatch)
        for number, row in enumerate(records(SPENDS)):
            people.charge(query(number), LIMITS)
            untold, synced = people.take_untold(), people.synced
            remember = partial(ledger.remember_scored, people.head, untold, synced)
            writes = [remember, partial(journal.commit, [row])]
            for write in writes if order == "ledger first" else reversed(writes):
                write()
            sent.append(number)
    except (PowerFailure, OperatorError):
        pass
    return sent


@BETWEEN
@pytest.mark.parametrize("order", ["ledger first", "journal first"])
def test_after_power_loss_no_scored_person_is_uncounted(order, crashes, monkeypatch):
    """The account does not wait for the disk: ledger or journal have what it may lose."""
    monkeypatch.setattr(scored_file, "UNSYNCED_MAX", 3)  # the ledger drops what is safe
    dice, start = random.Random(12), prepared()
    ScoredPeople(Connection(start, "scored", "NORMAL"), "shop", SECRET).close_file()
    for file in start.files.values():
        file.safe, file.pending = file.content(), []
    whole = copy(start)
    assert score_until_failure(whole, order, monkeypatch) == list(range(SPENDS))
    lost = again = 0
    for fails_at in failing_writes(dice, whole.operations, crashes):
        disk = copy(start, fails_at)
        sent = score_until_failure(disk, order, monkeypatch)
        left = disk.after_failure(dice)
        ledger = Ledger(Connection(left, "ledger"), "shop", SECRET)
        people = ScoredPeople(Connection(left, "scored", "NORMAL"), "shop", SECRET)
        lost += people.head.sequence < len(sent)
        if (seen := ledger.remembered().get(ACCOUNT)) is not None:
            people.redo(ledger.unsynced(), seen[0])
            people.check_restored(seen[0])
        assert people.head.sequence >= len(sent)
        for number, _, _ in journal_on(left, monkeypatch).records():  # as `Node.open` does
            again += people.charge_again(query(number), LIMITS, b"", "")
        people.verify()
        assert people.totals()["queries_most"] == people.head.sequence >= len(sent)
    assert lost > 0
    assert (again > 0) == (order == "journal first")
