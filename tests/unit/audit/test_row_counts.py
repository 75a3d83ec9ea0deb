"""A party that reports another number of common rows than the others."""

from __future__ import annotations

from hdpvfl_mq.audit.audit import audit
from scripts import verify_journal
from tests.evidence import only, replace_model, saying, write_run
from tests.unit.audit.cheats import cheating_until_stuck


def test_the_count_of_most_parties_makes_the_plan(tmp_path):
    """Bug: whoever reported first chose the plan of an audit, and how long it takes to derive."""
    lie = saying("aligned", lambda message: replace_model(message, rows=message.rows * 1000))
    evidence = only(cheating_until_stuck(bank={"says": lie}), "coordinator")
    first, *others = [e.message.rows for e in evidence.said if e.header.kind == "aligned"]
    assert others == [first // 1000] * 2  # the liar was heard first
    assert evidence.plan is not None
    assert evidence.plan.rows == others[0]
    assert verify_journal.Run(write_run(evidence, tmp_path), None, None).rows == others[0]
    assert not [v for v in audit(evidence) if "at fault" in v.found]
