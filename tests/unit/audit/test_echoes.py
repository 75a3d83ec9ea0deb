"""When echoes differ, an audit names the one party at fault, whoever shows a journal."""

from __future__ import annotations

import re

import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.audit.checks_echo import echoes_hold
from schemas.ids import COORDINATOR
from scripts import verify_journal
from tests.evidence import write_run
from tests.unit.audit.echoed import ALL, shown
from tests.unit.audit.honest import honest

pytestmark = pytest.mark.seconds
BOTH, HONEST = ("bank", "shop"), ("bank", "shop", "telco")


def at_fault(evidence, folder) -> set[str]:
    """Whom the findings of both verifiers name; the same, or the test fails."""
    said = " ".join(verdict.found for verdict in audit(evidence))
    independent = " ".join(verify_journal.verify(write_run(evidence, folder)).values())
    named = [set(re.findall(r"at fault: (\w+)", text)) for text in (said, independent)]
    assert named[0] == named[1], (said, independent)
    return named[0]


@pytest.mark.parametrize(
    ("liar", "lie", "journals"),
    [
        (COORDINATOR, "split orders", HONEST),
        (COORDINATOR, "split orders", BOTH),
        (COORDINATOR, "split orders", ALL),
        ("shop", "false echo", ALL),
        ("shop", "false echo", BOTH),
        ("shop", "false echo", (COORDINATOR, "bank")),  # what shop acknowledged
        ("shop", "false report", ALL),
        ("shop", "false report", (COORDINATOR, "shop")),
        ("bank", "early residual", ALL),
        ("shop", "refused orders", ALL),  # its journal says so, and it acts on them
    ],
)
def test_a_lie_about_orders_or_residuals_is_its_tellers_fault(liar, lie, journals, tmp_path):
    assert at_fault(shown(liar, lie, *journals), tmp_path) == {liar}


@pytest.mark.parametrize(
    ("liar", "lie", "journals"),
    [
        (COORDINATOR, "split orders", ("bank",)),
        ("shop", "false echo", ("bank",)),
        ("shop", "false echo", ("bank", "telco")),
        ("shop", "false report", (COORDINATOR,)),
        ("shop", "false report", (COORDINATOR, "bank")),  # it may have refused a residual
        ("shop", "refused orders", (COORDINATOR, "bank")),
        ("bank", "early residual", (COORDINATOR, "shop", "telco")),
        (COORDINATOR, "illegal order", HONEST),
        (COORDINATOR, "illegal order", (COORDINATOR, "bank")),
    ],
)
def test_nobody_is_blamed_by_journals_that_cannot_show_it(liar, lie, journals, tmp_path):
    assert at_fault(shown(liar, lie, *journals), tmp_path) == set()


def test_a_hash_that_is_false_from_its_start_is_found_and_blames_nobody(tmp_path):
    """Only the parties know where it starts: two that collude could accuse a third."""
    evidence = shown("shop", "false reports", *ALL)
    found = [verdict.found for verdict in audit(evidence) if not verdict.passed]
    assert any("report different hashes" in text for text in found)
    assert at_fault(evidence, tmp_path) == set()


def test_honest_echoes_are_nobodys_fault(tmp_path):
    echoes_hold(honest())
    assert at_fault(honest(), tmp_path) == set()
