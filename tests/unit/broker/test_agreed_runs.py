"""A run in a federation, at the registrar: no phase has a field of another, late inputs change it
no more.
"""

from __future__ import annotations

import pytest

from broker.agreed_runs import MOVES
from broker.run_phases import Closed, Open, Over, Proposed, Refused, Stopping, is_busy
from broker.standing import Standing, describe, in_vain
from hdpvfl_mq.machine import OperatorCommand, Received, TimerFired, dispatch
from schemas.commands import CannotOpen, CloseRun, EndRun, StopRun
from schemas.federation import RunAnswer, RunStop
from tests.federation import manifest

RUN = "test-run"
ACCEPT = RunAnswer(run=RUN, accepted=True, reason="")
LATE = TimerFired(timer=f"proposal:{RUN}")
STOP = Received("shop", RunStop(run=RUN, reason="operator"))
STOP_HERE = OperatorCommand(command=StopRun(run=RUN, reason="operator"))
CLOSE = OperatorCommand(command=CloseRun(run=RUN, outcome="completed", reason="done"))
END = OperatorCommand(command=EndRun(run=RUN, outcome="completed", reason="ended"))
CANNOT_OPEN = OperatorCommand(command=CannotOpen(run=RUN, reason="taken"))
INPUTS = (
    Received("shop", ACCEPT),
    LATE,
    STOP,
    STOP_HERE,
    CLOSE,
    END,
    CANNOT_OPEN,
)


def after(run, *inputs):
    for given in inputs:
        run, _ = dispatch(MOVES, Standing(), run, given)
    return run


@pytest.mark.parametrize(
    ("phase", "fields"),
    [
        (Proposed, {"outcome": "completed"}),
        (Proposed, {"reason": "no"}),
        (Open, {"accepted": frozenset()}),
        (Open, {"outcome": "completed"}),
        (Open, {"reason": "stopped"}),
        (Stopping, {}),
        (Stopping, {"reason": "stopped", "outcome": "completed"}),
        (Closed, {"reason": "stopped"}),
        (Refused, {}),
        (Refused, {"reason": "no", "outcome": "completed"}),
        (Over, {"reason": "ended"}),
        (Over, {"reason": "ended", "outcome": "completed", "accepted": frozenset()}),
    ],
)
def test_a_phase_has_only_its_own_fields(phase, fields):
    """Bug: a proposed run could have an outcome, an open one the parties that had accepted it."""
    with pytest.raises(TypeError):
        phase(manifest(), **fields)


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("run", [Refused(manifest(), "no"), Over(manifest(), "completed", "")])
def test_a_run_that_has_ended_changes_no_more(run, given):
    assert dispatch(MOVES, Standing(), run, given) == (run, ())


def test_a_proposal_that_waits_too_long_names_who_has_not_answered():
    run = after(Proposed(manifest()), Received("telco", ACCEPT), LATE)
    assert run == Refused(manifest(), "no answer of shop within 7 days")


def test_a_second_answer_of_a_party_does_not_count():
    accepted = after(Proposed(manifest()), Received("shop", ACCEPT))
    refuse = RunAnswer(run=RUN, accepted=False, reason="no")
    assert after(accepted, Received("shop", refuse)) == accepted
    assert after(accepted, Received("telco", refuse)) == Refused(manifest(), "telco: no")


def test_the_first_who_stops_an_open_run_is_named():
    stopped = after(Open(manifest()), STOP, STOP_HERE)
    assert stopped == Stopping(manifest(), "shop: its operator stopped it")
    assert after(stopped, CLOSE) == Closed(manifest(), "completed", "done", is_stopped=True)


def test_a_stop_after_the_end_is_shown_and_changes_no_outcome():
    closed = after(Open(manifest()), CLOSE, STOP_HERE, STOP)
    said = "the broker's operator stopped it"
    assert closed == Closed(manifest(), "completed", said, is_stopped=True)
    assert after(closed, END) == Over(manifest(), "completed", "ended")


def test_a_closed_run_that_the_broker_cannot_reopen_keeps_its_outcome():
    over, (told,) = dispatch(MOVES, Standing(), after(Open(manifest()), CLOSE), CANNOT_OPEN)
    assert over == Over(manifest(), "completed", "taken")
    assert (told.to, told.message.phase) == (manifest().parties, "refused")


@pytest.mark.parametrize(
    ("run", "phase", "waiting_for", "outcome", "reason"),
    [
        (Proposed(manifest(), frozenset({"shop"})), "proposed", ["telco"], "", ""),
        (Open(manifest()), "open", [], "", ""),
        (Stopping(manifest(), "shop: no"), "open", [], "", "shop: no"),
        (Closed(manifest(), "completed", "done"), "over", [], "completed", "done"),
        (Refused(manifest(), "no"), "refused", [], "", "no"),
        (Over(manifest(), "completed", "done"), "over", [], "completed", "done"),
    ],
)
def test_what_the_operator_is_shown(run, phase, waiting_for, outcome, reason):
    shown = describe(run)
    assert shown["phase"] == phase
    assert shown["waiting_for"] == waiting_for
    assert (shown["outcome"], shown["reason"]) == (outcome, reason)
    assert is_busy(run) == (phase in ("proposed", "open"))
    assert in_vain([run], "bank") == (phase == "refused")
