"""A run's bounded releases and the pure slots of its party's policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.app.commands.ledger import show, standings
from hdpvfl_mq.arrays.unreleased import Unreleased
from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.privacy.bounded_laws import label_noise
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.plan import plan_bounded, plan_disclosed
from hdpvfl_mq.privacy.pure import pure_units_of
from parties.process.ledger_book import LedgerBook
from parties.process.ledger_file import open_ledger
from schemas.policy import PartyPolicy
from schemas.privacy import Budget, Release

BUDGET = Budget(epsilon=1.0, delta=0.01)
HALF = pure_units_of(0.5)


def policy(*slots: float) -> PartyPolicy:
    return PartyPolicy(
        dataset="people",
        lifetime=Budget(epsilon=2.0, delta=0.01),
        pure_slots=slots,
        run_epsilon_max=1.0,
    )


def book(ledger: Ledger, run: str, *slots: float) -> LedgerBook:
    return LedgerBook(ledger, policy(*(slots or (0.5, 0.5))), run, b"r" * 32)


def reservation(*pure: int, mu2: int = 5) -> Reserve:
    return Reserve(mu2_units=mu2, tau_units=1, exact=False, pure_units=pure)


def released(run: str, number: int) -> Release:
    noise, labels = label_noise(0.5), Unreleased(np.zeros(4))
    plan = replace(plan_bounded(noise, BUDGET, mean_square=1.0), rounds=4, mu2_cumulative=(0,) * 4)
    plan = replace(plan, tau_cumulative=(0,) * 4)
    mechanism = Mechanism("bank", run, b"s" * 32, {"residual": plan})
    return mechanism.release(labels, "residual", number, b"")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path / "ledger.db", "bank")


def test_a_policy_s_slots_are_what_a_run_may_take(ledger: Ledger) -> None:
    first, second = book(ledger, "first"), book(ledger, "second")
    assert first.standing().slots_free == (HALF, HALF)
    first.reserve(reservation(HALF))
    assert second.standing().slots_free == (0, HALF)
    assert first.standing().slots_free == (HALF, HALF)  # its own reserve is its own
    second.reserve(reservation(HALF))
    with pytest.raises(RefusedError, match="no room"):
        book(ledger, "third").reserve(reservation(1))


def test_slots_make_the_gaussian_budget_smaller(tmp_path: Path) -> None:
    free = []
    for name, slots in (("a", ()), ("b", (0.5,)), ("c", (0.5, 0.5))):
        ledger = open_ledger(tmp_path / name / "ledger.db", "bank")
        account = LedgerBook(ledger, policy(*slots), "run", b"r" * 32)
        free.append(account.standing().mu2_units_free)
    assert free[0] > free[1] > free[2] > 0


def test_after_a_crash_the_same_reserve_and_release_change_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    account = book(ledger, "first")
    account.reserve(reservation(HALF, HALF))
    account.book([released("first", 0)])
    book(ledger, "other").reserve(reservation())
    ledger.close_file()
    again = open_ledger(tmp_path / "ledger.db", "bank")
    account, head = book(again, "first"), again.head()
    account.reserve(reservation(HALF, HALF))
    account.book([released("first", 0)])
    assert again.head() == head
    account.book([released("first", 0), released("first", 1)])
    assert again.books.spent("people").pure == (HALF, HALF)
    assert account.spent().pure == (HALF, HALF)


def test_a_bounded_release_is_not_booked_without_a_slot(ledger: Ledger) -> None:
    account = book(ledger, "first")
    account.reserve(reservation())
    with pytest.raises(RefusedError, match="no share"):
        account.book([released("first", 0)])


def test_the_ledger_shows_how_many_rows_a_run_has_disclosed(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a run with disclosed rows looked like one in which epsilon holds for everybody."""
    account = book(ledger, "first")
    account.reserve(reservation())
    mechanism = Mechanism("bank", "first", b"s" * 32, {"share": plan_disclosed(137)})
    account.book([mechanism.release(Unreleased(np.zeros(137)), "share", 0, b"")])
    assert standings(ledger)[0]["runs"][0]["disclosed_rows"] == 137
    ledger.close_file()
    assert show(tmp_path / "ledger.db", as_json=False) == 0
    assert "137" in capsys.readouterr().out


def test_the_ledger_is_shown_with_its_slots(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = book(ledger, "first")
    account.reserve(reservation(HALF))
    account.book([released("first", 0)])
    (row,) = standings(ledger)
    assert row["pure_slots"] == [
        {"epsilon": 0.5, "epsilon_held": 0.5},
        {"epsilon": 0.5, "epsilon_held": 0.0},
    ]
    assert row["runs"][0]["pure_epsilons"] == [0.5]
    assert 0.4 < row["runs"][0]["epsilon_spent"] < 0.51
    ledger.close_file()
    assert show(tmp_path / "ledger.db", as_json=False) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0.5 of 0.5, 0 of 0.5" in said
