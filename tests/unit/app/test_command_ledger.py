"""`hdpvfl ledger`: whole names at 80 columns, what is left, and what left without noise."""

from __future__ import annotations

import json

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.machine import Reserve
from parties.process.ledger_book import LedgerBook
from parties.process.ledger_file import open_ledger
from schemas.privacy import Release, SpendEvent
from tests.federation import policy
from tests.golden.recorded import recorded_evidence

RUN = "visits-20261117-071059-410125-scores-1"  # as long as 'hdpvfl predict' makes them


@pytest.fixture
def path(tmp_path):
    """A ledger with an exact release and one of 20 disclosed rows."""
    path = tmp_path / "shop" / "ledger.db"
    ledger = open_ledger(path, "shop")
    noised = next(m.release for _, m in recorded_evidence("sound").releases())
    for run, mechanism, rows in ((RUN, "exact", 0), ("spring", "disclosed", 20)):
        book = LedgerBook(ledger, policy(), run, b"r" * 32)
        book.reserve(Reserve(mu2_units=0, tau_units=0, exact=mechanism == "exact"))
        event = SpendEvent(
            release_id=f"{run}/shop/score/0",
            round=0,
            mechanism=mechanism,
            mu2_units=0,
            tau_units=0,
            disclosed_rows=rows,
        )
        changes = {"release_id": event.release_id, "event": event}
        book.book([Release(**{**dict(noised), **changes})])
        book.close()
    ledger.close_file()
    return path


def test_run_names_are_whole_and_lines_fit_80_columns(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ledger", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert RUN in out
    assert all(len(line) <= 80 for line in out.splitlines() if line.startswith(("run", "visits")))


def test_infinite_spends_and_disclosed_rows_are_said(path, capsys):
    assert main(["ledger", "show", str(path), "--json"]) == 0
    [people] = json.loads(capsys.readouterr().out)
    runs = {run["run"]: run for run in people["runs"]}
    assert people["epsilon_spent"] == runs[RUN]["epsilon_spent"] == "infinite"
    assert runs[RUN]["exact_disclosures"] == 1
    assert runs["spring"]["disclosed_rows"] == 20
    assert people["epsilon_left"] == pytest.approx(50.0, rel=1e-3)  # the cap still limits noise
    assert main(["ledger", "show", str(path)]) == 0
    assert "epsilon infinite is spent, of a cap of 50" in capsys.readouterr().out


def test_a_damaged_ledger_is_one_line_and_exit_code_5(path, capsys):
    whole = path.read_bytes()
    for log in path.parent.glob("ledger.db-*"):
        log.unlink()
    path.write_bytes(whole.replace(b"spring", b"sprint"))
    assert main(["ledger", "verify", str(path)]) == 5
    said = capsys.readouterr().err
    assert said.startswith("hdpvfl: ")
    assert said.count("\n") == 1
    path.write_bytes(b"not a database at all")
    assert main(["ledger", "show", str(path), "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["exit"] == 5
