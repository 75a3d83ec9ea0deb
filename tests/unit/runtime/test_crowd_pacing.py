"""Many peers are given time, asked seldom and sent few copies."""

from __future__ import annotations

import pytest

from hdpvfl_mq.runtime.copies import Copies, Sendings
from hdpvfl_mq.runtime.pacing import (
    ACK_DELAY_S,
    CROWD_PEERS,
    CROWD_S,
    GAP_PEER_S,
    GAP_S,
    QUIET_MAX_S,
    QUIET_S,
    RESEND_S,
    Pacing,
)
from tests.unit.runtime.fake_mailbox import FakeMailbox, turn


@pytest.fixture
def mailbox():
    return FakeMailbox()


@pytest.mark.parametrize(("peers", "after_s"), [(CROWD_PEERS, ACK_DELAY_S), (108, 0.42)])
def test_one_acknowledgement_answers_many_of_a_crowd(mailbox, peers, after_s):
    """Bug: on a busy machine every party sent an acknowledgement for each of a crowd's copies."""
    pacing = Pacing()
    mailbox.owes, mailbox.peer_count = True, peers
    pacing.after_turn(mailbox, turn(), 0.0)
    assert pacing.next() == pytest.approx(after_s)
    assert after_s < RESEND_S + CROWD_S * (peers - CROWD_PEERS)


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


def test_the_memory_of_copies_holds_no_arrays_either():
    """Bug: a crowd's arrays that had been sent again stayed in memory for minutes."""
    copies, large = Copies(), (b"header", b"signature", b"body", bytes(1000))
    copies.note([large], 0.0)
    assert copies.due([large], 1.0, wait_s=60.0) == ()
    assert all(len(part) < 1000 for kept in copies._sent for part in kept)
    assert copies.due([large], 60.0, wait_s=60.0) == (large,)


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
