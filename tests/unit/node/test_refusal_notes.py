"""Refused frames are recorded up to a limit, which nobody can use up for another."""

from __future__ import annotations

import pytest

from hdpvfl_mq.node import refusals
from hdpvfl_mq.node.refusals import Refusals
from schemas.records import Arm, TimerFired
from tests.unit.node.node_bench import PAUSE, REPORT, SHARE, new_bench

GARBAGE = (b"no", b"header", b"at all")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(refusals, "NOTED_MAX", 5)
    return new_bench()


def test_garbage_does_not_keep_a_proved_fault_out_of_the_journal(bench):
    """Bug: after it the role did not learn of a peer's fault, and the run waited without a word."""
    bench.node.role.script["offence"] = ()
    bench.node.turn([GARBAGE] * 20)
    assert len(bench.refused()) == 5
    header, _, *rest = bench.bank.say(PAUSE)
    bench.node.refuse(
        (header, b"", *rest),
        "acknowledges an envelope 1 that is not the one it was sent",
        by="bank",
    )
    bench.node.turn([])
    assert bench.node.state[-1] == "offence"
    assert len(bench.refused()) == 6


def test_faults_repeated_while_the_role_reacts_leave_room_for_later_ones(monkeypatch):
    monkeypatch.setattr(refusals, "REPEATED_MAX", 3)
    armed = {"missing:bank:1": None}
    noted = Refusals(lambda: armed)
    for _ in range(50):
        noted.withheld("bank", "envelope 7 is missing")
        noted.take()
    assert noted.noted["bank"] == 3
    armed.clear()
    noted.withheld("bank", "envelope 9 is missing")
    assert len(noted.take()) == 1


def test_many_peers_together_leave_room_for_the_fault_of_another(monkeypatch):
    """Bug: 512 members that collude could write 10,000 notes each."""
    monkeypatch.setattr(refusals, "NOTED_MAX", 50)
    monkeypatch.setattr(refusals, "NOTED_EACH", 3)
    noted = Refusals(dict)
    for _ in range(40):
        for peer in range(10):
            noted.withheld(f"p{peer}", "envelope 7 is missing")
        noted.turned_away(GARBAGE, "no header", None)
        noted.take()
    assert noted.noted.pop(None) == 40
    assert noted.noted.total() == 10 * 3 + 50
    for _ in range(5):
        noted.withheld("bank", "envelope 9 is missing")
        noted.take()
    assert noted.noted["bank"] == 3


def test_of_many_faults_in_one_turn_a_few_are_noted(monkeypatch):
    monkeypatch.setattr(refusals, "REPEATED_MAX", 3)
    noted = Refusals(dict)
    for _ in range(50):
        noted.turned_away(GARBAGE, "a false envelope", "bank")
    assert len(noted.take()) == 3


def test_a_peer_that_serves_parts_and_stops_again_leaves_a_journal_that_replays(bench, monkeypatch):
    """Bug: its timer was dropped without a record, and a restart found another answer to a note."""
    timer = Arm(timer="missing:bank:here", delay_ms=1000)
    bench.script["offence"] = bench.node.role.script["offence"] = (timer,)

    def withhold():
        bench.node._note_withheld("bank", "serves no part")
        return bench.node.turn([]).arm

    assert withhold() == (timer,)
    assert withhold() == ()  # the timer is set
    fired = TimerFired(timer=timer.timer)
    with monkeypatch.context() as serving:
        serving.setattr(bench.node.parts, "is_served", lambda peer: True)
        bench.node.turn([], [fired])
    assert bench.node.state[-1] == "offence"  # the role did not hear of the timer
    assert withhold() == (timer,)
    assert withhold() == ()
    bench.restart()
    assert bench.node.armed == {timer.timer: timer}
    bench.node.turn([], [fired])  # this process has not noted anything
    assert bench.node.state[-1] == "offence"
    assert withhold() == (timer,)
    bench.node.turn([], [fired])
    assert bench.node.state[-1] == "timer:missing:bank:here"
    assert bench.node.armed == {}


@pytest.mark.parametrize("is_much", [False, True])
@pytest.mark.parametrize("comes", ["envelope", "acknowledgement"])
def test_a_peer_that_has_stopped_withholding_is_not_named(bench, monkeypatch, is_much, comes):
    """Bug: it was named if what was missing had come, but brought the run no further in time."""
    timer = Arm(timer="missing:bank:here", delay_ms=5000)
    fired = TimerFired(timer=timer.timer)
    bench.node.role.script = {"pause": (SHARE,), "offence": (timer,)}
    bench.node.turn([bench.coordinator.say(PAUSE), bench.coordinator.say(PAUSE)])
    monkeypatch.setattr(bench.node.mailbox, "owes_much", lambda peer: is_much)
    bench.node._note_withheld("bank", "it withholds something")
    assert bench.node.turn([]).arm == (timer,)
    monkeypatch.setattr(bench.node.mailbox, "owes_much", lambda peer: False)
    if comes == "envelope":
        bench.node.turn([bench.bank.say(REPORT.message)])
    else:
        bench.node.mailbox._outbox["bank"].acknowledge(1)
    before = bench.node.state
    bench.node.turn([], [fired])
    is_named = bench.node.state != before
    assert is_named == (is_much != (comes == "acknowledgement"))
