"""Proposals that are repeated are counted and limited; the count reads no row."""

from __future__ import annotations

import pytest

from hdpvfl_mq.errors import PeerError
from parties.refusals import ASKED_MAX, refusals, waiting
from schemas.commands import AnswerRun, EndRun
from schemas.federation import RunProposal
from tests.federation import manifest
from tests.unit.parties.test_roster import Member


def proposed(shop: Member, name: str) -> None:
    shop.hear(RunProposal(manifest=manifest(run=name)))


def refused(shop: Member, name: str) -> None:
    proposed(shop, name)
    shop.command(AnswerRun(run=name, accepted=False, reason="no"))


def test_refusals_are_counted_since_the_last_completed_run():
    shop = Member("shop", 1)
    for number in range(3):
        refused(shop, f"run-{number}")
    assert refusals(shop.state.runs.values(), "bank") == 3
    assert refusals(shop.state.runs.values(), "telco") == 0
    for outcome, left in (("withdrawn", 3), ("completed", 0)):
        proposed(shop, outcome)
        shop.command(AnswerRun(run=outcome, accepted=True, reason=""))
        shop.command(EndRun(run=outcome, outcome=outcome, reason=""))
        assert refusals(shop.state.runs.values(), "bank") == left


def test_proposals_that_wait_for_an_answer_are_bounded():
    shop = Member("shop", 1)
    for number in range(ASKED_MAX):
        proposed(shop, f"run-{number}")
    assert waiting(shop.state.runs.values(), "bank") == ASKED_MAX
    with pytest.raises(PeerError, match=f"{ASKED_MAX} proposals of bank wait"):
        proposed(shop, "one-more")
    shop.command(AnswerRun(run="run-0", accepted=False, reason="no"))
    proposed(shop, "one-more")
