"""News of runs: a registrar cannot answer a proposal in a party's place."""

from __future__ import annotations

import pytest

from hdpvfl_mq.errors import PeerError
from schemas.commands import AnswerRun
from schemas.federation import RunNews, RunProposal
from tests.federation import manifest
from tests.unit.parties.test_roster import Member


@pytest.fixture
def shop():
    member = Member("shop", 10)
    member.hear(RunProposal(manifest=manifest()))
    return member


def news(phase: str, wire: int = 1) -> RunNews:
    return RunNews(run="test-run", phase=phase, waiting_for=(), reason="", wire=wire)


def known(member: Member):
    return member.state.runs["test-run"]


@pytest.mark.parametrize("phase", ["proposed", "open"])
def test_no_news_stand_for_the_answer_of_a_party(shop, phase):
    """Bug: after news that the run is proposed, which only the proposer gets, it could open."""
    with pytest.raises(PeerError, match="has not accepted"):
        shop.hear(news(phase))
    assert known(shop).phase == "asked"


def test_a_run_opens_once_and_in_one_version(shop):
    shop.command(AnswerRun(run="test-run", accepted=True, reason=""))
    shop.hear(news("open", wire=2))
    for phase in ("proposed", "open"):
        with pytest.raises(PeerError, match="already open"):
            shop.hear(news(phase))
    assert (known(shop).phase, known(shop).manifest.wire) == ("open", 2)
    shop.hear(news("refused", wire=2))  # the broker could not open it
    assert known(shop).phase == "refused"
