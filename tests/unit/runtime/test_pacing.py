"""When to speak without having heard; the clock is a number that the test moves."""

from __future__ import annotations

import pytest

from hdpvfl_mq.machine import TimerFired, arm
from hdpvfl_mq.runtime.gaps import LACK_MAX_S, LACK_S
from hdpvfl_mq.runtime.lagging import PROBE_S
from hdpvfl_mq.runtime.pacing import (
    ACK_DELAY_S,
    CROWD_PEERS,
    CROWD_S,
    GAP_S,
    GREET_S,
    READ_S,
    RESEND_MAX_S,
    RESEND_S,
    Pacing,
)
from hdpvfl_mq.wire.sequence import EARLY_MAX
from tests.unit.runtime.fake_mailbox import FakeMailbox, turn


@pytest.fixture
def mailbox():
    return FakeMailbox()


def test_nothing_is_due_when_nothing_is_open(mailbox):
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(), 0.0)
    assert pacing.next() is None
    due = pacing.due(100.0)
    assert (due.fired, due.acknowledge, due.resend, due.greet) == ((), False, False, False)


def test_timers_fire_once_at_their_time_in_the_order_of_their_names(mailbox):
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(arm=[arm("watch", 1.0), arm("deadline", 1.0)]), 10.0)
    assert pacing.due(10.9).fired == ()
    assert pacing.due(11.0).fired == (TimerFired(timer="deadline"), TimerFired(timer="watch"))
    assert pacing.due(12.0).fired == ()


def test_arming_again_moves_a_timer(mailbox):
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(arm=[arm("watch", 1.0)]), 0.0)
    pacing.after_turn(mailbox, turn(arm=[arm("watch", 1.0)]), 0.5)
    assert pacing.due(1.2).fired == ()
    assert pacing.due(1.5).fired == (TimerFired(timer="watch"),)


def test_an_acknowledgement_waits_a_moment_for_an_answer_to_ride_on(mailbox):
    pacing = Pacing()
    mailbox.owes = True
    pacing.after_turn(mailbox, turn(), 0.0)
    pacing.after_turn(mailbox, turn(), ACK_DELAY_S / 2)  # a second turn does not put it off
    assert pacing.due(ACK_DELAY_S).acknowledge
    assert not pacing.due(ACK_DELAY_S).acknowledge


@pytest.mark.parametrize("peers", [1, CROWD_PEERS, 64])
def test_a_share_that_waits_for_others_is_acknowledged_before_it_would_come_again(mailbox, peers):
    mailbox.owes, mailbox.peer_count = True, peers
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(waits=True), now=0.0)
    patience_s = RESEND_S + CROWD_S * max(0, peers - CROWD_PEERS)
    assert not pacing.due(0.4 * patience_s).acknowledge  # the answer to all usually comes first
    assert pacing.due(0.6 * patience_s).acknowledge


def test_what_does_not_wait_is_acknowledged_soon_with_what_does(mailbox):
    mailbox.owes = True
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(waits=True), now=0.0)
    pacing.after_turn(mailbox, turn(), now=0.1)
    assert pacing.due(0.1 + ACK_DELAY_S).acknowledge


def test_sending_again_slows_down_while_nothing_gets_through(mailbox):
    pacing = Pacing()
    mailbox.has_unacknowledged = True
    pacing.after_turn(mailbox, turn(send=[(b"",)]), 0.0)
    moments = []
    for _ in range(8):
        moments.append(pacing.next())
        assert pacing.due(pacing.next()).resend
    gaps = [b - a for a, b in zip([0.0, *moments], moments, strict=False)]
    assert gaps[0] == RESEND_S
    assert gaps == sorted(gaps)
    assert gaps[-1] == RESEND_MAX_S


def test_a_peer_that_says_what_it_has_is_sent_the_rest_at_once_and_then_slowly(mailbox):
    """Bug: what was lost with a connection waited for the timer, which is slow in a crowd."""
    pacing = Pacing()
    mailbox.has_unacknowledged, mailbox.peer_count = True, 64
    mailbox.waiting = [(b"header", b"signature", b"body")]
    pacing.after_turn(mailbox, turn(send=mailbox.waiting), 0.0)
    mailbox.lacking = mailbox.waiting_peers = ("shop",)
    times = []
    first = round(10 * pacing.lost_s) + 1
    for step in range(first, first + 200):
        pacing.after_turn(mailbox, turn(), 0.1 * step)
        if due := pacing.due(0.1 * step).behind:
            assert due == (("shop", EARLY_MAX),)
            times.append(0.1 * step)
    assert times[0] == 0.1 * first
    assert len(times) <= 4
    assert times[1] - times[0] >= PROBE_S


def test_a_hello_is_repeated_after_a_silence(mailbox):
    pacing = Pacing()
    mailbox.greeting = (b"",)
    pacing.after_turn(mailbox, turn(), 0.0)
    assert not pacing.due(GREET_S - 0.1).greet
    assert pacing.due(GREET_S).greet
    pacing.after_turn(mailbox, turn(), 2 * GREET_S)  # something was heard
    assert not pacing.due(2.5 * GREET_S).greet


def test_a_gap_lasts_when_its_peer_still_sends_later_envelopes(mailbox):
    pacing = Pacing()
    mailbox.early, mailbox.number = ("shop",), 7
    for now in (0.0, GAP_S - 0.1):
        pacing.after_turn(mailbox, turn(), now)
        assert pacing.due(now).gaps == ()
    pacing.after_turn(mailbox, turn(), GAP_S)
    assert pacing.next() == 0.0
    assert pacing.due(GAP_S).gaps == ("shop",)
    assert pacing.due(GAP_S).gaps == ()


def test_a_missing_envelope_is_asked_for_until_it_comes(mailbox):
    """Bug: with 512 parties a lost envelope waited for its sender's timer, which is slow."""
    pacing = Pacing()
    mailbox.peer_count = 512
    mailbox.early, mailbox.number = ("shop",), 7
    pacing.after_turn(mailbox, turn(), 0.0)
    mailbox.early = ()
    assert pacing.due(LACK_S - 0.1).lacks == ()
    asked = []
    while (now := pacing.next()) < 200.0:
        asked += [now] if pacing.due(now).lacks == ("shop",) else []
    waits = [b - a for a, b in zip([0.0, *asked], asked, strict=False)]
    assert waits[0] == LACK_S
    assert waits == sorted(waits)
    assert waits[-1] == LACK_MAX_S
    mailbox.number = None  # it has come
    pacing.after_turn(mailbox, turn(), 200.0)
    assert pacing.gaps.next_at is None


def test_a_gap_of_a_silent_peer_is_no_offence(mailbox):
    """It may be restarting; its first envelopes fill the gap."""
    pacing = Pacing()
    mailbox.early, mailbox.number = ("shop",), 7
    pacing.after_turn(mailbox, turn(), 0.0)
    mailbox.early = ()
    pacing.after_turn(mailbox, turn(), 10 * GAP_S)
    assert pacing.due(10 * GAP_S).gaps == ()
    mailbox.early, mailbox.number = ("shop",), 8  # the stream went on in the meantime
    pacing.after_turn(mailbox, turn(), 11 * GAP_S)
    assert pacing.due(11 * GAP_S).gaps == ()


@pytest.mark.parametrize("peers", [1, 64])
def test_while_this_node_works_nobody_is_late(mailbox, peers):
    """Bug: after a turn of seconds a party sent again what had been answered meanwhile."""
    pacing, busy_s = Pacing(), 20.0
    mailbox.has_unacknowledged, mailbox.peer_count, mailbox.greeting = True, peers, (b"hello",)
    mailbox.early, mailbox.number = ("shop",), 3
    pacing.after_turn(mailbox, turn(send=[(b"",)]), 0.0)
    mailbox.early = ()
    deadlines = (pacing.resend_at, pacing.greet_at, pacing.gaps.next_at, pacing.quiet_at)
    pacing.was_busy(busy_s)
    moved = (pacing.resend_at, pacing.greet_at, pacing.gaps.next_at, pacing.quiet_at)
    assert moved == tuple(None if at is None else at + busy_s for at in deadlines)
    assert pacing.gaps.noted == {"shop": (3, busy_s)}
    due = pacing.due(deadlines[0])
    assert not due.resend
    assert pacing.due(deadlines[0] + busy_s).resend


def test_a_timer_of_a_process_that_was_stopped_waits_once_until_what_came_is_read(mailbox):
    """Bug: a process that was stopped named peers whose messages it had not read yet."""
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(arm=[arm("missing:shop:x", 5.0)]), 0.0)
    assert pacing.due(60.0).fired == ()
    assert pacing.next() == 60.0 + READ_S
    assert pacing.due(60.0 + READ_S / 2).fired == ()
    assert pacing.due(120.0).fired == (TimerFired(timer="missing:shop:x"),)  # stopped again
    pacing.after_turn(mailbox, turn(arm=[arm("missing:shop:x", 5.0)]), 120.0)
    assert pacing.due(180.0).fired == ()  # another timer of that name


@pytest.mark.parametrize(("due_s", "fires_s"), [(5.0, 21.0), (20.05, 21.0), (30.0, 30.0)])
def test_a_timer_waits_once_for_what_came_during_a_long_turn(mailbox, due_s, fires_s):
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(arm=[arm("watch", due_s)]), 0.0)
    for end in (20.0, 20.5):  # whoever keeps this node busy does not stop its timers
        pacing.was_busy(0.5)
        pacing.after_turn(mailbox, turn(), end)
    assert pacing.next() == fires_s
    assert pacing.due(fires_s).fired == (TimerFired(timer="watch"),)
