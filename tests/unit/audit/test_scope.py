"""The first lines of an audit say what it was shown and what that leaves open."""

from __future__ import annotations

from hdpvfl_mq.app.commands.audit import as_lines
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.scope import scope
from tests.evidence import only, with_rows
from tests.unit.audit.honest import honest


def test_all_journals_of_a_closed_run_leave_nothing_open():
    lines = scope(honest())
    assert lines[0].startswith("test-run: shown are the journals of ")
    assert len(lines) == 2
    assert "both ways" in lines[1]


def test_a_cut_journal_shown_alone_is_said_to_be_open_in_the_first_lines():
    """Bug: it passed like a whole one."""
    alone = only(honest(), "shop")
    rows = alone.transcripts["shop"].rows
    cut = with_rows(alone, "shop", rows[: len(rows) // 2])
    verdicts = audit(cut)
    assert exit_code(verdicts) == 0  # nothing in it contradicts itself
    first = "\n".join(as_lines(cut, verdicts)[:5])
    assert "not shown: bank, coordinator, telco" in first
    assert "the run is not closed in the journal of shop" in first
    assert "does not prove that nothing came after" in first
    assert "no ledger is shown" in first
    assert not any("is not closed" in line for line in scope(alone))
