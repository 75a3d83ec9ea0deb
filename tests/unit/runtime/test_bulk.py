"""Large envelopes: how long they may take before they are sent again."""

from __future__ import annotations

import pytest

from hdpvfl_mq.runtime.bulk import MAX_S as BULK_MAX_S
from hdpvfl_mq.runtime.bulk import RESEND_MAX_S as BULK_RESEND_MAX_S
from hdpvfl_mq.runtime.pacing import (
    GAP_S,
    RESEND_S,
    Pacing,
)
from hdpvfl_mq.wire.sequence import EARLY_MAX
from tests.unit.runtime.fake_mailbox import FakeMailbox, bulk, turn


@pytest.fixture
def mailbox():
    return FakeMailbox()


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


def test_bulk_that_is_lost_comes_again_before_its_gap_counts_as_withholding(mailbox):
    """Bug: it came after its whole wait, a minute at most, and a gap may last 15 seconds."""
    pacing, lost = Pacing(), bulk(8_000_000)
    mailbox.has_unacknowledged, mailbox.waiting, mailbox.again = True, (lost,), (lost,)
    pacing.bulk.answer_s = pacing.bulk.answered_at = 40.0
    pacing.after_turn(mailbox, turn(send=[lost]), 0.0)
    assert pacing.resend_s > GAP_S
    sent_at = []
    for now in (2.0, 6.0, 14.0):  # when its receiver asks for what it lacks
        mailbox.lacking = ("shop",)
        pacing.after_turn(mailbox, turn(), now)
        # While it may be on its way a question does not count, so the next one need not wait.
        assert ("shop" in pacing.lagging.asked_at) == (now > 2.0)
        if pacing.again(mailbox, pacing.due(now), now):
            sent_at.append(now)
            pacing.note_again(lost, now)
    assert sent_at[0] == 6.0
