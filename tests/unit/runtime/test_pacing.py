"""When to speak without having heard; the clock is a number that the test moves."""

from __future__ import annotations

import pytest

from hdpvfl_mq.machine import TimerFired, arm
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.bulk import MAX_S as BULK_MAX_S
from hdpvfl_mq.runtime.bulk import RESEND_MAX_S as BULK_RESEND_MAX_S
from hdpvfl_mq.runtime.copies import Sendings
from hdpvfl_mq.runtime.lagging import PROBE_S
from hdpvfl_mq.runtime.pacing import (
    ACK_DELAY_S,
    CROWD_PEERS,
    CROWD_S,
    GAP_PEER_S,
    GAP_S,
    GREET_S,
    LACK_MAX_S,
    LACK_S,
    QUIET_MAX_S,
    QUIET_S,
    RESEND_MAX_S,
    RESEND_S,
    Pacing,
)
from hdpvfl_mq.wire.sequence import EARLY_MAX, Position


class FakePost:
    owes = False
    has_unacknowledged = False
    peer_count = 1
    acknowledged = 0
    greeting = None
    early = ()
    number = None
    waiting_peers = ()

    lacking = ()
    again = ()

    def take_lacking(self):
        return self.lacking

    waiting = ()

    def unacknowledged_by(self, party, first):
        return self.waiting[:first]

    def position(self, party):
        return Position(0, 3, 100)

    def unacknowledged(self, first):
        return self.again

    def unacknowledged_by_each(self, wanted):
        return self.again if wanted else ()

    def take_early(self):
        return self.early

    def missing(self, party):
        return self.number


def turn(*, send=(), arm=(), waits=False):
    return Turn(tuple(send), tuple(arm), None, waits=waits)


def bulk(size, signature=b"signature"):
    return b"header", signature, bytes(size)


@pytest.fixture
def mailbox():
    return FakePost()


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


@pytest.mark.parametrize(("peers", "after_s"), [(CROWD_PEERS, ACK_DELAY_S), (108, 0.42)])
def test_one_acknowledgement_answers_many_of_a_crowd(mailbox, peers, after_s):
    """Bug: on a busy machine every party sent an acknowledgement for each of a crowd's copies."""
    pacing = Pacing()
    mailbox.owes, mailbox.peer_count = True, peers
    pacing.after_turn(mailbox, turn(), 0.0)
    assert pacing.next() == pytest.approx(after_s)
    assert after_s < RESEND_S + CROWD_S * (peers - CROWD_PEERS)


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


@pytest.mark.parametrize(("size", "times"), [(3_000_000, 12), (8_000_000, 7)])
def test_one_bucket_of_ids_is_sent_again_a_few_times_too(mailbox, size, times):
    pacing = Pacing()
    mailbox.has_unacknowledged = True
    pacing.after_turn(mailbox, turn(send=[bulk(size)]), 0.0)
    resent = 0
    while pacing.next() < 180.0:
        resent += pacing.due(pacing.next()).resend
    assert 2 < resent <= times  # it was 89 and 39


def test_bulk_is_sent_again_a_few_times_however_long_its_receiver_works(mailbox):
    pacing = Pacing()
    mailbox.has_unacknowledged = True
    pacing.after_turn(mailbox, turn(send=[bulk(32_000_000)]), 0.0)
    pacing.after_turn(mailbox, turn(send=[(b"",)]), 1.0)  # a small one does not hurry the bulk
    moments = []
    while pacing.next() < 180.0:
        moments.append(pacing.next())
        assert pacing.due(pacing.next()).resend
    assert moments[0] == 1.0 + RESEND_S + BULK_MAX_S
    assert len(moments) <= 6
    mailbox.acknowledged = 1  # it got through: bulk that is lost after it may take as long
    pacing.after_turn(mailbox, turn(), 200.0)
    assert pacing.next() == 200.0 + RESEND_S + BULK_RESEND_MAX_S


def test_bulk_waits_twice_as_long_as_bulk_has_taken_to_be_acknowledged(mailbox):
    """Bug: parties on a busy machine sent every block of entity resolution two or three times."""
    pacing = Pacing()
    mailbox.has_unacknowledged = True
    for number, (took_s, wait_s) in enumerate([(9.0, 18.0), (4.0, 18.0), (1.0, 18.0)]):
        begun = 20.0 * number
        pacing.after_turn(mailbox, turn(send=[bulk(1_000_000)]), begun)
        mailbox.acknowledged += 1
        pacing.after_turn(mailbox, turn(), begun + took_s)
        assert pacing.next() == pytest.approx(begun + took_s + RESEND_S + wait_s)
    for number in range(20):  # small messages are sent again as soon as ever
        pacing.after_turn(mailbox, turn(send=[(b"",)]), 100.0 + number)
    assert pacing.next() == pytest.approx(119.0 + RESEND_S, abs=0.001)


def test_bulk_that_was_sent_just_now_is_not_sent_again(mailbox):
    """Bug: an acknowledgement that was written before the bulk came was taken for a request.

    The party that had just sent 40 MB sent them again at once.
    """
    pacing, sent, small = Pacing(), bulk(1_000_000), (b"header", b"of a small one", b"")
    mailbox.has_unacknowledged, mailbox.again = True, (small, sent)
    pacing.after_turn(mailbox, turn(send=[small, sent]), 0.0)
    mailbox.lacking = mailbox.waiting_peers = ("shop",)
    pacing.after_turn(mailbox, turn(), 0.1)
    due = pacing.due(0.1)
    assert due.behind == (("shop", EARLY_MAX),)
    assert pacing.again(mailbox, due, 0.1) == (small,)
    late = pacing.next()
    due = pacing.due(late)
    assert due.resend
    assert pacing.again(mailbox, due, late) == (small, sent)
    pacing.note_again(sent, late)
    assert pacing.again(mailbox, due, late + 0.1) == (small,)
    pacing.bulk.forget()  # its connection is lost
    assert pacing.again(mailbox, due, late + 0.1) == (small, sent)


@pytest.mark.parametrize(("peers", "first_s"), [(CROWD_PEERS, 0.5), (64, 14.5), (512, 126.5)])
def test_a_crowd_is_given_time_to_answer(mailbox, peers, first_s):
    pacing = Pacing()
    mailbox.has_unacknowledged, mailbox.peer_count = True, peers
    pacing.after_turn(mailbox, turn(send=[(b"",)]), 0.0)
    assert pacing.resend_at == pytest.approx(first_s)
    assert pacing.due(pacing.resend_at).resend
    mailbox.acknowledged, slower_s = 1, pacing.resend_s  # one of many has answered
    assert first_s < slower_s <= max(GAP_S, GAP_PEER_S * peers) / 2
    pacing.after_turn(mailbox, turn(), 100.0)
    is_crowd = peers > CROWD_PEERS
    assert pacing.resend_at == pytest.approx(100.0 + slower_s - RESEND_S * is_crowd, abs=0.51)
    mailbox.has_unacknowledged, mailbox.acknowledged = False, peers  # all have
    pacing.after_turn(mailbox, turn(), 200.0)
    mailbox.has_unacknowledged = True
    pacing.after_turn(mailbox, turn(send=[(b"",)]), 300.0)
    assert pacing.resend_at == pytest.approx(300.0 + first_s)


def test_a_crowd_does_not_keep_the_pace_of_bulk_that_got_through(mailbox):
    """Bug: what was lost later came a minute later, and its receiver took it for withheld."""
    pacing = Pacing()
    mailbox.has_unacknowledged, mailbox.peer_count = True, 20
    pacing.after_turn(mailbox, turn(send=[bulk(32_000_000)]), 0.0)
    while pacing.resend_at < 180.0:
        assert pacing.due(pacing.resend_at).resend
    assert pacing.resend_s > GAP_S
    for answered in range(1, 10):
        mailbox.acknowledged = answered
        pacing.after_turn(mailbox, turn(send=[(b"",)]), 200.0 + answered)
    assert pacing.resend_s <= GAP_S / 2


@pytest.mark.parametrize(("slower", "copies"), [(1, 3), (20, 9)])
@pytest.mark.parametrize("peers", [64, 128, 512])
def test_copies_to_a_crowd_that_works_for_minutes_stay_few(mailbox, peers, slower, copies):
    """Bug: a crowd was sent to every six seconds, which is more than it could read."""
    pacing, work_s = Pacing(), slower * 0.001 * peers**2  # all parties on two cores, or on less
    mailbox.has_unacknowledged, mailbox.peer_count = True, peers
    pacing.after_turn(mailbox, turn(send=[(b"",)]), 0.0)
    resent = 0
    while pacing.next() < work_s:
        resent += pacing.due(pacing.next()).resend
    assert resent <= copies


@pytest.mark.parametrize(("peers", "at_most_s"), [(CROWD_PEERS, 0.7), (64, 130.0), (256, 570.0)])
def test_a_crowd_that_is_heard_works_and_is_sent_no_copies(mailbox, peers, at_most_s):
    """Bug: each of 256 parties on a busy machine sent its hellos twice before it had any answer."""
    pacing, now = Pacing(), 0.0
    mailbox.has_unacknowledged, mailbox.peer_count = True, peers
    pacing.after_turn(mailbox, turn(send=[(b"",)]), now)
    while not pacing.due(now).resend:  # hellos of others arrive, and no answer
        now += 0.1
        pacing.after_turn(mailbox, turn(), now)
        assert now < at_most_s
    assert now > 0.7 * at_most_s
    silent = Pacing()
    silent.after_turn(mailbox, turn(send=[(b"",)]), 0.0)
    assert silent.due(RESEND_S + CROWD_S * (peers - CROWD_PEERS)).resend


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


@pytest.mark.parametrize(("peers", "is_sent"), [(CROWD_PEERS, True), (64, False), (512, False)])
def test_what_a_crowd_has_just_been_sent_is_on_its_way_not_lost(mailbox, peers, is_sent):
    """Bug: each of 128 parties asked while a pause was in its queue; a copy went to 32 parties."""
    pacing = Pacing()
    mailbox.has_unacknowledged, mailbox.peer_count = True, peers
    mailbox.waiting = [(b"header", b"signature", b"body")]
    pacing.after_turn(mailbox, turn(send=mailbox.waiting), 0.0)
    mailbox.lacking = mailbox.waiting_peers = ("shop",)
    asked_at_s = pacing.lost_s - 0.1
    pacing.after_turn(mailbox, turn(), asked_at_s)
    assert bool(pacing.due(asked_at_s).asked) == is_sent
    pacing.after_turn(mailbox, turn(), pacing.lost_s + 0.1)  # by now it is lost
    assert is_sent or pacing.due(pacing.lost_s + 0.1).asked == ("shop",)


def test_where_peers_answer_slowly_what_they_ask_for_may_take_as_long(mailbox):
    pacing = Pacing()
    mailbox.peer_count = 64
    pacing.after_turn(mailbox, turn(), 0.0)
    quick_s = pacing.lost_s
    pacing.lagging.answer_s = quick_s + 1.0
    assert pacing.lost_s == quick_s + 1.0
    pacing.lagging.answer_s = 1000.0  # one that was away is no measure of the others
    assert pacing.lost_s == pacing.crowd_s


def test_the_memory_of_what_was_sent_holds_no_arrays_and_ends():
    sendings = Sendings()
    large = (b"header", b"signature", b"body", bytes(1000))
    sendings.note([large], 0.0, kept_s=5.0)
    assert sendings.is_fresh([large], 4.9, within_s=5.0)
    assert not sendings.is_fresh([large], 5.0, within_s=5.0)
    assert large not in sendings._first
    sendings.note([(b"other", b"signature")], 5.0, kept_s=5.0)
    assert list(sendings._first) == [(b"other", b"signature")]


def test_a_gap_of_a_large_federation_may_last_as_long_as_its_senders_wait(mailbox):
    """Bug: a run with 64 partners on a busy machine ended, because one was taken for lost."""
    pacing, sender = Pacing(), Pacing()
    mailbox.peer_count = 512
    mailbox.early, mailbox.number = ("shop",), 7
    mailbox.has_unacknowledged = True
    sender.after_turn(mailbox, turn(send=[(b"",)]), 0.0)
    sender.due(sender.next())
    for now in (0.0, 2 * sender.next()):
        pacing.after_turn(mailbox, turn(), now)
        assert pacing.due(now).gaps == ()
    pacing.after_turn(mailbox, turn(), GAP_PEER_S * 512)
    assert pacing.due(GAP_PEER_S * 512).gaps == ("shop",)


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
    assert pacing.lack_at is None


def test_a_crowd_that_is_silent_is_asked_more_and_more_slowly(mailbox):
    """Bug: when the last envelope of a peer was lost, nothing later showed it."""
    pacing = Pacing()
    pacing.after_turn(mailbox, turn(), 0.0)
    assert pacing.next() is None  # two parties: the sender's timer is soon enough
    mailbox.peer_count = CROWD_PEERS + 1
    pacing.after_turn(mailbox, turn(), 0.0)
    asked = []
    while (now := pacing.next()) < 300.0:
        asked += [now] if pacing.due(now).is_quiet else []
    waits = [b - a for a, b in zip([0.0, *asked], asked, strict=False)]
    assert QUIET_S < waits[0] < QUIET_S + CROWD_S
    assert waits == sorted(waits)
    assert waits[-1] == QUIET_MAX_S
    mailbox.owes = True  # something has arrived
    pacing.after_turn(mailbox, turn(), 300.0)
    mailbox.owes = False
    assert not pacing.due(300.0 + QUIET_S).is_quiet
    assert pacing.due(300.0 + QUIET_S + CROWD_S).is_quiet


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
    deadlines = (pacing.resend_at, pacing.greet_at, pacing.lack_at, pacing.quiet_at)
    pacing.was_busy(busy_s)
    moved = (pacing.resend_at, pacing.greet_at, pacing.lack_at, pacing.quiet_at)
    assert moved == tuple(None if at is None else at + busy_s for at in deadlines)
    assert pacing.gaps == {"shop": (3, busy_s)}
    due = pacing.due(deadlines[0])
    assert not due.resend
    assert pacing.due(deadlines[0] + busy_s).resend
