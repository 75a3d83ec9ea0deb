"""The order of things in a process: ledger, journal, then speech; after an error, nothing."""

from __future__ import annotations

import sqlite3

import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.machine import Finish, OperatorRequest, Send, TimerFired, arm
from hdpvfl_mq.node.performing import RECEIVERS_MAX, spread
from hdpvfl_mq.node.uncommitted import one_by_one
from hdpvfl_mq.wire.codec import decode_header
from hdpvfl_mq.wire.sequence import EARLY_MAX
from tests.samples import sample
from tests.unit.node.node_bench import (
    KEYS,
    PAUSE,
    REPORT,
    SHARE,
    Bench,
    messages,
)

# -- ledger, journal, speech ----------------------------------------------------------------------


def test_a_release_is_booked_and_journaled_before_it_is_sent(bench):
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.log.events == ["reserve", "enter", "book", "commit"]
    assert messages(turn) == ["score_share", "withdraw"]


def journal_first(ledger, journal):
    """The other order, which two writes at the same time may have."""
    journal()
    ledger()


@pytest.mark.parametrize("both", [one_by_one, journal_first])
def test_a_refused_booking_is_in_no_journal(bench, both):
    """Else the release could never be booked, and the run would not go on after a restart."""
    bench.both = both
    bench.restart().start()
    bench.log.fail, before = "enter", bench.stored()
    with pytest.raises(OperatorError, match="full at enter"):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.stored() == before


def test_what_only_the_journal_has_is_booked_before_it_is_sent_again(bench):
    """The ledger's write fails, or the power goes, after the journal is written."""
    bench.both = journal_first
    bench.restart().start()
    bench.log.fail = "book"
    with pytest.raises(OperatorError, match="full at book"):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    assert not bench.book.booked
    with pytest.raises(OperatorError, match="full at book"):
        bench.restart()  # still no room for the booking: nothing is sent
    bench.log.fail, bench.log.events = "", []
    node = bench.restart()
    assert bench.log.events == ["book"]
    assert len(bench.book.booked) == 1
    sent_again = [decode_header(frames).kind for frames in node.mailbox.unacknowledged()]
    assert "score_share" in sent_again
    bench.log.events.clear()
    bench.restart()
    assert bench.log.events == []  # the ledger has it


def test_a_turn_is_one_commit_however_much_arrives(bench):
    turn = bench.node.turn([bench.coordinator.say(PAUSE) for _ in range(5)])
    assert bench.log.events == ["reserve"] * 5 + ["enter", "book", "commit"]
    assert len(turn.send) == 10
    assert len(bench.stored()) == 6  # the start and five steps


@pytest.mark.parametrize("broken", ["reserve", "book", "commit"])
def test_an_error_of_ledger_or_journal_means_that_nothing_is_sent(bench, broken):
    bench.log.fail = broken
    before = bench.stored()
    with pytest.raises(OperatorError, match="disk is full"):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.stored() == before
    assert "commit" not in bench.log.events
    if broken != "commit":
        assert "book" not in bench.log.events


def test_after_an_error_the_restarted_process_makes_the_same_step_once(bench):
    frames = bench.coordinator.say(PAUSE)
    bench.log.fail = "commit"
    with pytest.raises(OperatorError):
        bench.node.turn([frames])
    bench.log.fail = ""
    node = bench.restart()
    node.start()
    turn = node.turn([frames])
    assert node.state == ("started", "started", "pause")
    assert messages(turn) == ["score_share", "withdraw"]


def test_a_release_without_a_ledger_is_never_sent():
    bench = Bench(book=False)
    bench.node.start()
    with pytest.raises(IntegrityError, match="without a ledger"):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    assert len(bench.stored()) == 1


def test_a_real_journal_error_stops_the_turn(bench):
    bench.journal._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(OperatorError, match="nothing was sent after the last commit"):
        bench.node.turn([bench.coordinator.say(PAUSE)])


# -- timers, epochs, outcome ----------------------------------------------------------------------


def test_timers_survive_a_restart_until_they_have_fired():
    bench = Bench({"pause": (arm("watch", 5.0),), "timer:watch": (arm("late", 7.0),)})
    assert bench.node.start().arm == ()
    assert bench.node.turn([bench.coordinator.say(PAUSE)]).arm == (arm("watch", 5.0),)
    assert bench.restart().start().arm == (arm("watch", 5.0),)
    assert bench.node.turn([], [TimerFired(timer="watch")]).arm == (arm("late", 7.0),)
    assert bench.restart().start().arm == (arm("late", 7.0),)


def test_epochs_rise_with_every_start(bench):
    assert bench.node.epoch == 1
    for epoch in (2, 3):
        node = bench.restart()
        node.start()
        assert node.epoch == epoch


def test_an_outcome_is_remembered():
    bench = Bench({"pause": (Finish(outcome="completed"),)})
    bench.node.start()
    assert bench.node.turn([bench.coordinator.say(PAUSE)]).outcome == "completed"
    assert bench.restart().outcome == "completed"


# -- the journal is the memory --------------------------------------------------------------------


def test_folding_the_journal_gives_the_same_node(bench):
    bench.node.turn([bench.coordinator.say(PAUSE), bench.bank.say(sample("residual"))])
    before = bench.node
    after = bench.restart()
    assert (after.state, after.head, after.steps) == (before.state, before.head, before.steps)
    assert after.mailbox.unacknowledged() == before.mailbox.unacknowledged()


def test_another_behaviour_than_recorded_is_an_integrity_error(bench):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    bench.script = {"pause": (REPORT, SHARE)}
    with pytest.raises(IntegrityError):
        bench.restart()


def test_another_signing_key_than_recorded_is_an_integrity_error(bench, monkeypatch):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    monkeypatch.setitem(KEYS, "shop", SigningKey(bytes([9]) * 32))
    with pytest.raises(IntegrityError):
        bench.restart()


def test_a_move_the_role_refuses_is_recorded_and_changes_nothing():
    bench = Bench({"pause": "refuse"})
    bench.node.start()
    state = bench.node.state
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.node.state is state
    assert turn.send == ()
    assert b"pause is not wanted" in bench.stored()[-1][1]
    assert bench.restart().state == state


def test_the_order_of_arrival_within_a_turn_is_not_information(bench):
    first, second = Bench({}), Bench({})
    for other, order in ((first, 1), (second, -1)):
        other.node.start()
        arrivals = [other.coordinator.say(PAUSE), other.bank.say(sample("residual"))]
        other.node.turn(arrivals[::order])
    assert first.stored() == second.stored()


def test_a_second_process_on_the_journal_is_refused(tmp_path):
    path = tmp_path / "journal.db"
    first = Journal(path, run="test-run", party="shop")
    with pytest.raises(OperatorError, match="in use by another process"):
        Journal(path, run="test-run", party="shop")
    first.close()
    assert isinstance(sqlite3.connect(path), sqlite3.Connection)


@pytest.mark.parametrize("count", [1, 32, 33, 200])
def test_an_envelope_has_a_bounded_number_of_receivers_unless_it_holds_a_release(count):
    to = tuple(f"p{number}" for number in range(count))
    parts = spread(Send(to, PAUSE))
    assert tuple(party for part in parts for party in part.to) == to
    assert max(len(part.to) for part in parts) <= RECEIVERS_MAX
    assert len(parts) == -(-count // RECEIVERS_MAX)
    assert spread(Send(to, sample("residual"))) == (Send(to, sample("residual")),)


# -- an envelope that must wait for another peer's ------------------------------------------------


def test_an_early_envelope_waits_for_another_peers_message(bench):
    bench.node.role.script, bench.node.role.waits = {}, ("residual",)
    turn = bench.node.turn([bench.bank.say(sample("residual"))])
    assert turn.stopped == (("bank", 1),)
    assert bench.node.state == ("started",)
    assert not bench.node.mailbox.owes  # not acknowledged, so its sender keeps it
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.node.state == ("started", "pause", "residual")  # though bank comes first by name
    assert turn.stopped == ()
    assert bench.refused() == []


def test_an_envelope_that_stays_early_for_too_long_is_an_offence(bench):
    bench.node.role.waits = ("residual",)
    bench.node.role.script = {"offence": (REPORT,)}
    bench.node.turn([bench.bank.say(sample("residual"))])
    bench.node.note_missing("bank")
    assert messages(bench.node.turn([])) == ["withdraw"]
    assert bench.refused() == ["a residual of bank before its time"]


def test_a_peer_whose_stream_this_node_stops_withholds_nothing(bench):
    bench.node.role.script, bench.node.role.waits = {}, ("residual",)
    said = [bench.bank.say(sample("residual")) for _ in range(EARLY_MAX + 2)]
    bench.node.turn(said)
    assert bench.refused() == []
    bench.node.role.waits = ()
    bench.node.turn([])
    assert bench.node.state.count("residual") == EARLY_MAX


def test_a_timer_comes_after_what_its_peer_has_sent(bench):
    """Bug: after a long turn an honest peer was named, whose message waited to be stepped."""
    bench.node.role.script = {}
    bench.node.turn([bench.coordinator.say(PAUSE)], [TimerFired(timer="watch")])
    assert bench.node.state == ("started", "pause", "timer:watch")


def test_what_the_operator_asks_for_comes_before_what_peers_send(bench):
    """A command fits the state in which it was given."""
    bench.node.role.script = {}
    bench.node.turn([bench.coordinator.say(PAUSE)], [OperatorRequest(request="withdraw")])
    assert bench.node.state == ("started", "withdraw", "pause")


def test_a_timer_that_the_same_turn_sets_again_does_not_fire_for_the_time_before(bench):
    """Its end came with the command for the next query: that query would be over at once."""
    bench.node.role.script = {"withdraw": (arm("answer:0", 5.0),)}
    asked = OperatorRequest(request="withdraw")
    turn = bench.node.turn([], [TimerFired(timer="answer:0"), asked])
    assert bench.node.state == ("started", "withdraw")
    assert [each.timer for each in turn.arm] == ["answer:0"]
    assert "answer:0" in bench.node.armed
    bench.node.turn([], [TimerFired(timer="answer:0")])
    assert bench.node.state == ("started", "withdraw", "timer:answer:0")
