"""A run in a federation, at a member: no phase has a field of another."""

from __future__ import annotations

import pytest

from hdpvfl_mq.errors import PeerError
from parties.belonging import describe
from parties.run_phases import Asked, Open, Over, Proposed, Refused
from schemas.commands import AnswerRun, EndRun, ProposeRun, StopRun
from schemas.federation import RunNews, RunProposal, RunStop
from tests.federation import manifest
from tests.unit.parties.test_roster import Member

RUN = "test-run"


def known(member: Member):
    return member.state.runs[RUN]


def news(phase: str, reason: str = "") -> RunNews:
    return RunNews(run=RUN, phase=phase, waiting_for=(), reason=reason)


@pytest.mark.parametrize(
    ("phase", "fields"),
    [
        (Asked, {"outcome": "completed"}),
        (Asked, {"reason": "no"}),
        (Asked, {"waiting_for": ("shop",)}),
        (Proposed, {"outcome": "completed"}),
        (Open, {"outcome": "completed"}),
        (Open, {"waiting_for": ("shop",)}),
        (Refused, {}),
        (Refused, {"reason": "no", "rows": "rows.csv"}),
        (Over, {"reason": "ended"}),
        (Over, {"reason": "ended", "outcome": "completed", "waiting_for": ("shop",)}),
    ],
)
def test_a_phase_has_only_its_own_fields(phase, fields):
    """Bug: a run that waits for an answer could have an outcome."""
    with pytest.raises(TypeError):
        phase(manifest(), **fields)


def test_what_its_operator_asked_for_is_known_until_the_run_opens():
    bank = Member("bank", 10)
    bank.command(ProposeRun(manifest=manifest(), rows="rows.csv", out="scores.csv", session=True))
    assert known(bank).waiting_for == manifest().passive_parties
    bank.hear(news("proposed"))
    bank.hear(news("open"))
    wanted = {"rows": "rows.csv", "out": "scores.csv", "is_session": True}
    assert known(bank) == Open(manifest(), **wanted)
    bank.command(EndRun(run=RUN, outcome="completed", reason="done"))
    assert known(bank) == Over(manifest(), "completed", "done")


def test_a_stop_answers_a_proposal_and_leaves_an_open_run_to_the_registrar():
    shop = Member("shop", 10)
    shop.hear(RunProposal(manifest=manifest()))
    shop.command(StopRun(run=RUN, reason="operator"))
    assert known(shop) == Refused(manifest(), "stopped here")
    with pytest.raises(PeerError, match="neither proposed nor open"):
        shop.command(StopRun(run=RUN, reason="operator"))
    telco = Member("telco", 11)
    telco.hear(RunProposal(manifest=manifest()))
    telco.command(AnswerRun(run=RUN, accepted=True, reason="yes"))
    telco.hear(news("open"))
    telco.command(StopRun(run=RUN, reason="operator"))
    assert known(telco) == Open(manifest(), reason="yes")
    assert telco.sent[-1] == shop.sent[-1] == RunStop(run=RUN, reason="operator")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (Asked(manifest()), ""),
        (Proposed(manifest(), reason="yes"), "yes"),
        (Open(manifest(), reason="yes"), "yes"),
    ],
)
def test_the_registrar_may_refuse_a_run_and_not_end_it(run, reason):
    shop = Member("shop", 10)
    shop.state = shop.state.with_run(RUN, run)
    with pytest.raises(PeerError, match="own stream says when it is over"):
        shop.hear(news("over"))
    assert known(shop) == run
    shop.hear(news("refused"))
    assert known(shop) == Refused(manifest(), reason)
    shop.state = shop.state.with_run(RUN, run)
    shop.hear(news("refused", "taken"))
    assert known(shop) == Refused(manifest(), "taken")


@pytest.mark.parametrize(
    "run", [Asked(manifest()), Proposed(manifest()), Open(manifest()), Refused(manifest(), "no")]
)
def test_every_run_may_end_and_ends_once(run):
    shop = Member("shop", 10)
    shop.state = shop.state.with_run(RUN, run)
    shop.command(EndRun(run=RUN, outcome="stopped", reason="first"))
    shop.command(EndRun(run=RUN, outcome="completed", reason="second"))
    shop.hear(news("refused"))
    assert known(shop) == Over(manifest(), "stopped", "first")


@pytest.mark.parametrize(
    "run",
    [Proposed(manifest()), Open(manifest()), Refused(manifest(), ""), Over(manifest(), "", "")],
)
def test_only_a_run_that_asks_is_answered(run):
    shop = Member("shop", 10)
    shop.state = shop.state.with_run(RUN, run)
    with pytest.raises(PeerError, match="waits for no answer"):
        shop.command(AnswerRun(run=RUN, accepted=True, reason=""))


@pytest.mark.parametrize(
    ("run", "phase", "waiting_for", "outcome", "reason"),
    [
        (Asked(manifest()), "asked", [], "", ""),
        (
            Proposed(manifest(), reason="yes", waiting_for=("shop",)),
            "proposed",
            ["shop"],
            "",
            "yes",
        ),
        (Open(manifest(), reason="yes"), "open", [], "", "yes"),
        (Refused(manifest(), "no"), "refused", [], "", "no"),
        (Over(manifest(), "completed", "done"), "over", [], "completed", "done"),
    ],
)
def test_what_the_operator_is_shown(run, phase, waiting_for, outcome, reason):
    shown = describe(run)
    assert shown["phase"] == phase
    assert shown["waiting_for"] == waiting_for
    assert (shown["outcome"], shown["reason"]) == (outcome, reason)
