"""The account of scored people beside a ledger: what trainings may spend, and what is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hdpvfl_mq.app.commands.ledger import new_secret, scored, show
from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger import Books, apply
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.score_limits import Asked, Limits
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from parties.process.ledger_book import LedgerBook
from parties.process.ledger_file import open_ledger
from schemas.policy import PartyPolicy
from schemas.privacy import Budget, LedgerHead, PeopleCounted

POLICY = PartyPolicy(
    dataset="people", lifetime=Budget(epsilon=2.0, delta=0.01), run_epsilon_max=1.0
)
COST = 2**36
LIMITS = Limits(queries_max=10, models_max=1, mu2_units_max=2**40)
NOBODY: Any = None  # attach reads neither data nor node before a query comes


def score(ledger: Ledger, query: int = 0) -> None:
    """One noised score of one person, as a session charges it."""
    people = ledger.scored_people()
    people.charge(Asked("scores", query, [b"ada"], b"0", b"w", COST), LIMITS)
    ledger.remember_scored(people.head, people.take_untold(), people.synced)


@pytest.fixture
def reopened(tmp_path: Path) -> Callable[[], Ledger]:
    opened: list[Ledger] = []

    def again() -> Ledger:
        if opened:
            opened[-1].close_file()
        opened.append(open_ledger(tmp_path / "ledger.db", "shop"))
        return opened[-1]

    return again


def book(ledger: Ledger, run: str = "training") -> LedgerBook:
    return LedgerBook(ledger, POLICY, run, b"r" * 32)


def test_what_noised_scores_cost_is_gone_for_trainings_also_after_a_restart(reopened):
    ledger = reopened()
    cap = book(ledger).standing().mu2_units_free
    score(ledger)
    score(ledger, 1)
    ledger = reopened()
    left = cap - (cap >> 20) - 2 * COST  # a little is kept for the tau of all scores
    assert book(ledger).standing().mu2_units_free == left
    wanted = Reserve(mu2_units=left + 1, tau_units=0, exact=False)
    with pytest.raises(RefusedError, match="leaves less"):
        book(ledger).reserve(wanted)
    assert not book(ledger).standing().is_reserved
    book(ledger).reserve(Reserve(mu2_units=left, tau_units=0, exact=False))
    assert book(ledger).standing().is_reserved


def test_show_leaves_no_more_than_the_ledger_grants(reopened, tmp_path, capsys):
    """Bug: what noised scores had cost was shown as left."""
    score(reopened())
    ledger = reopened()
    free = book(ledger).standing().mu2_units_free
    ledger.close_file()
    show(tmp_path / "ledger.db", as_json=True)
    [row] = json.loads(capsys.readouterr().out)
    granted = epsilon_shown(Spent(mu2_units=free), POLICY.lifetime.delta)
    assert row["epsilon_left"] == pytest.approx(granted, rel=1e-5)
    (tmp_path / "ledger.secret").unlink()
    new_secret(tmp_path / "ledger.db", as_json=True)
    capsys.readouterr()
    show(tmp_path / "ledger.db", as_json=True)
    [row] = json.loads(capsys.readouterr().out)
    assert row["epsilon_left"] == pytest.approx(granted, rel=1e-5)


def test_a_head_that_peers_see_covers_the_account(reopened):
    ledger = reopened()
    mine = book(ledger)
    mine.attach(NOBODY, NOBODY)
    head = mine.standing().head
    assert mine.standing().head == head
    score(ledger)
    assert book(ledger).standing().head == head  # asked for by a status page, not by a run
    seen = mine.standing().head
    assert seen.sequence == head.sequence + 1
    *_, (_, entry) = ledger.entries()
    assert entry == PeopleCounted(head=ledger.scored_people().head)
    assert mine.standing().head == seen
    ledger.verify()


def test_an_account_that_is_gone_stops_trainings_too(reopened, tmp_path):
    score(reopened())
    reopened().close_file()
    (tmp_path / "scored.db").unlink()
    with pytest.raises(IntegrityError, match="older copy"):
        book(reopened()).attach(NOBODY, NOBODY)


def test_an_older_account_and_ledger_do_not_have_the_heads_of_a_snapshot(reopened, tmp_path):
    """Bug: queries are no entries of the ledger, so a snapshot hid that both copies were older."""
    score(reopened())
    ledger = reopened()
    ledger.close_file()
    older = {file: (tmp_path / file).read_bytes() for file in ("ledger.db", "scored.db")}
    ledger = reopened()
    mine = book(ledger)
    score(ledger, 1)
    heads = mine.heads()
    assert mine.has_heads(heads)
    ledger.close_file()
    for file, content in older.items():
        (tmp_path / file).write_bytes(content)
    mine = book(reopened())
    mine.attach(NOBODY, NOBODY)
    assert not mine.has_heads(heads)
    assert mine.has_heads(mine.heads())


def test_an_account_without_an_entry_is_no_older_copy(reopened):
    """Bug: a party stopped between making its account and the first entry never started again."""
    for _ in range(2):
        ledger = reopened()
        ledger.scored_people()
        book(ledger).attach(NOBODY, NOBODY)


def test_a_refused_account_is_refused_again_after_the_service_has_stopped(reopened, tmp_path):
    """Bug: closing stored the head of the other account, and the next start accepted it."""
    score(reopened())
    reopened().close_file()
    file = tmp_path / "scored.db"
    newest = file.read_bytes()
    file.unlink()
    people = ScoredPeople.open(file, "shop", reopened().secret)
    for query in range(2):
        people.charge(Asked("others", query, [b"eve"], b"0", b"w"), LIMITS)
    people.close_file()
    for _ in range(2):
        with pytest.raises(IntegrityError, match="entry 1 of the account"):
            book(reopened()).attach(NOBODY, NOBODY)
    reopened().close_file()
    file.write_bytes(newest)
    book(reopened()).attach(NOBODY, NOBODY)


def test_after_a_fault_of_the_disk_a_ledger_remembers_nothing_more(reopened, monkeypatch):
    """Bug: the entry of the failed write was lacking in the ledger, and later ones followed it."""
    ledger = reopened()
    people, write = ledger.scored_people(), ledger._db
    monkeypatch.setattr(ledger, "_db", FullDisk())
    with pytest.raises(OperatorError, match="disk full"):
        score(ledger)
    monkeypatch.setattr(ledger, "_db", write)
    with pytest.raises(OperatorError, match="write failed"):
        score(ledger, 1)
    assert people.head.sequence == 2


class FullDisk:
    def execute(self, statement: str, *_: Any) -> None:
        raise sqlite3.OperationalError("disk full")


def test_after_a_lost_secret_people_are_counted_from_zero(reopened, tmp_path):
    """Bug: the account under the lost secret, or its absence, stopped every later session."""
    ledger = reopened()
    score(ledger)
    free = book(ledger).standing().mu2_units_free
    ledger.close_file()
    (tmp_path / "ledger.secret").unlink()
    new_secret(tmp_path / "ledger.db", as_json=False)
    assert (tmp_path / "scored.before.db").is_file()
    ledger = reopened()
    mine = book(ledger)
    mine.attach(NOBODY, NOBODY)
    assert free <= mine.standing().mu2_units_free < free + COST // 10  # what is spent stays spent
    score(ledger)
    assert mine.standing().mu2_units_free == free - COST
    ledger.verify()


def test_what_only_the_ledger_has_of_the_account_stays_spent(reopened, tmp_path, capsys):
    """Bug: a new secret after a loss of power forgot the scores that only the ledger had."""
    ledger = reopened()
    score(ledger)
    ledger.close_file()
    before = (tmp_path / "scored.db").read_bytes()
    ledger = reopened()
    score(ledger, 1)
    free = book(ledger).standing().mu2_units_free
    killed = {file: (tmp_path / file).read_bytes() for file in ("ledger.db", "ledger.db-wal")}
    ledger.close_file()
    for file, content in {**killed, "scored.db": before}.items():
        (tmp_path / file).write_bytes(content)
    show(tmp_path / "ledger.db", as_json=True)
    [row] = json.loads(capsys.readouterr().out)
    granted = epsilon_shown(Spent(mu2_units=free), POLICY.lifetime.delta)
    assert row["epsilon_left"] == pytest.approx(granted, rel=1e-5)
    (tmp_path / "ledger.secret").unlink()
    new_secret(tmp_path / "ledger.db", as_json=False)
    assert free <= book(reopened()).standing().mu2_units_free < free + COST // 10


@pytest.mark.parametrize("is_older", [True, False])
def test_a_new_secret_needs_the_newest_account(reopened, tmp_path, is_older):
    """Bug: without the account, or with an older one, what noised scores had cost was free."""
    reopened().scored_people()
    reopened()
    before = (tmp_path / "scored.db").read_bytes()
    score(reopened())
    reopened().close_file()
    (tmp_path / "scored.db").unlink()
    if is_older:
        (tmp_path / "scored.db").write_bytes(before)
    (tmp_path / "ledger.secret").unlink()
    with pytest.raises(IntegrityError, match="older copy" if is_older else "put it back"):
        new_secret(tmp_path / "ledger.db", as_json=False)
    assert not (tmp_path / "ledger.secret").exists()


def test_the_account_in_a_ledger_only_grows():
    books = Books()
    apply(books, PeopleCounted(head=LedgerHead(sequence=2, digest=bytes(32))))
    for sequence in (1, 2):
        fewer = PeopleCounted(head=LedgerHead(sequence=sequence, digest=b"x" * 32))
        with pytest.raises(RefusedError, match="only grows"):
            apply(books, fewer)
    assert books.people.sequence == 2


def test_the_account_is_shown_beside_a_running_service(reopened, tmp_path, capsys):
    """Bug: the owner's name was read from the original, which the service has locked."""
    score(reopened())
    assert scored(tmp_path / "ledger.db", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["people"] == 1
