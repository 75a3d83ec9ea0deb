"""`hdpvfl up` in a folder with earlier runs: another delta is refused with an option as remedy."""

from __future__ import annotations

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.app.used_folder import refuse_other_delta
from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.machine import Reserve
from parties.process.ledger_book import LedgerBook
from parties.process.ledger_file import open_ledger
from schemas.policy import PartyPolicy
from schemas.privacy import Budget
from tests.federation import policy


def used(folder, dataset, *, delta, reserve=True):
    """A folder in which a run on a data set was started, or has reserved its cost too."""
    ledger = open_ledger(folder / "state" / "active" / "ledger.db", "active")
    cap = Budget(epsilon=50.0, delta=delta)
    fields = {**dict(policy()), "dataset": dataset, "lifetime": cap}
    book = LedgerBook(ledger, PartyPolicy(**fields), "first", b"r" * 32)
    if reserve:
        book.reserve(Reserve(mu2_units=1, tau_units=0, exact=False))
    ledger.close_file()


def test_another_delta_is_refused_with_both_remedies(tmp_path, capsys):
    """Bug: the sentence told to edit a policy that the command itself writes."""
    used(tmp_path, "breast", delta=0.01)
    asked = ["up", "--dataset", "breast", "--passives", "1", "--out", str(tmp_path)]
    assert main([*asked, "--delta", "0.001"]) == 3
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert "use --delta 0.01, or another folder with --out" in text
    assert "policy" not in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("budget", [Budget(epsilon=3.0, delta=0.01), None])
def test_the_same_delta_and_none_are_no_reason(tmp_path, budget):
    used(tmp_path, "breast", delta=0.01)
    refuse_other_delta(tmp_path / "state", ("active", "passive-1"), "breast", budget)


def test_only_runs_on_the_same_data_that_reserved_something_count(tmp_path):
    used(tmp_path, "breast", delta=0.01)
    other = Budget(epsilon=1.0, delta=0.001)
    refuse_other_delta(tmp_path / "state", ("active",), "credit", other)
    with pytest.raises(RefusedError):
        refuse_other_delta(tmp_path / "state", ("active",), "breast", other)
    used(tmp_path / "fresh", "breast", delta=0.01, reserve=False)
    refuse_other_delta(tmp_path / "fresh" / "state", ("active",), "breast", other)
