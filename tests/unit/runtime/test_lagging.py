"""Peers that are silent while others answer; the clock is a number that the test moves."""

from __future__ import annotations

import itertools

import pytest

from hdpvfl_mq.runtime.copies import Copies
from hdpvfl_mq.runtime.lagging import (
    ASKED_S,
    LAG_BYTES_PER_S,
    LAG_S,
    LOOKS,
    PROBE_S,
    Lagging,
)
from hdpvfl_mq.wire.sequence import EARLY_MAX, Position

STEP_S = 0.05  # a round of the others


class Streams:
    """The positions of two streams; telco acknowledges whatever it is sent."""

    def __init__(self, first_bytes=100):
        self.acknowledged, self.sent, self.first_bytes = 0, 0, first_bytes

    @property
    def waiting_peers(self):
        return ("shop", "telco") if self.acknowledged < self.sent else ("telco",)

    def position(self, party):
        if party == "telco":
            return Position(self.sent - 1, self.sent, 100)
        return Position(self.acknowledged, self.sent, self.first_bytes)


def rounds(lagging, streams, seconds, now=0.0, *, pace_s=0.5):
    """What shop is sent again while rounds go on: times and numbers of envelopes."""
    found = []
    for step in range(1, round(seconds / STEP_S) + 1):
        streams.sent += 1
        at = now + step * STEP_S
        due = lagging.due(streams, at, pace_s=pace_s)
        assert "telco" not in due  # it answers
        if due:
            found.append((at, due["shop"]))
    return found


def test_a_silent_peer_is_sent_to_again_although_others_answer():
    """Bug: every answer and every new envelope put it off for as long as the rounds went on."""
    found = rounds(Lagging(), Streams(), 20.0)
    assert found[0][0] <= 3 * LAG_S + 2 * STEP_S
    assert found[0][1] == EARLY_MAX
    assert {count for _, count in found[1:]} == {1}  # probes: the others get copies of them
    moments = [at for at, _ in found]
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    assert max(gaps) <= PROBE_S + LAG_S + STEP_S


def test_whoever_answers_a_probe_gets_all_it_missed_at_once():
    lagging, streams = Lagging(), Streams()
    rounds(lagging, streams, 30.0)
    missed = streams.sent
    assert missed > 2 * EARLY_MAX
    streams.acknowledged = 1
    assert lagging.due(streams, 30.01, pace_s=0.5) == {"shop": EARLY_MAX}
    assert lagging.due(streams, 30.02, pace_s=0.5) == {}  # until it has them
    streams.acknowledged += EARLY_MAX
    assert lagging.due(streams, 30.03, pace_s=0.5) == {"shop": EARLY_MAX}
    streams.acknowledged += EARLY_MAX
    assert lagging.due(streams, 30.04, pace_s=0.5) == {"shop": missed - 1 - 2 * EARLY_MAX}
    streams.acknowledged = missed
    assert lagging.due(streams, 30.05, pace_s=0.5) == {}
    assert "shop" not in lagging.behind


@pytest.mark.parametrize("begin", ["asks", "is silent"])
def test_a_peer_that_answers_again_gets_no_copy_of_what_is_new(begin):
    """Bug: each share of a run was sent twice after its receiver had once asked for a copy."""
    lagging, streams = Lagging(), Streams()
    streams.sent = 1
    lagging.due(streams, 0.0, pace_s=0.5)
    if begin == "asks":
        assert lagging.asked("shop", streams.position("shop"), 0.01)
    else:
        assert rounds(lagging, streams, 5.0)
    late = []
    for number in range(1, 100):  # every turn takes an answer and sends the next envelope
        streams.acknowledged = streams.sent
        streams.sent += 1
        late.append(lagging.due(streams, 5.0 + 0.01 * number, pace_s=0.5))
    assert [due for due in late if due] == []


def test_a_peer_that_answers_slowly_is_sent_nothing_again():
    lagging, streams = Lagging(), Streams()
    for second in range(20):
        assert rounds(lagging, streams, 0.5, now=second * 0.5) == []
        streams.acknowledged = streams.sent - 5


def test_bulk_and_a_crowd_wait_longer():
    bulk = rounds(Lagging(), Streams(first_bytes=int(10 * LAG_BYTES_PER_S)), 30.0)
    assert bulk[0][0] >= 10.0
    crowd = rounds(Lagging(), Streams(), 30.0, pace_s=6.0)
    assert crowd[0][0] >= 6.0


def test_a_copy_for_one_receiver_is_a_copy_for_all():
    """Bug: each receiver of an envelope that was silent at another time caused a copy to all."""
    copies, first, second = Copies(), (b"first",), (b"second",)
    for now, asked, due in (
        (0.0, (first,), (first,)),
        (1.0, (first, second), (second,)),
        (4.5, (first, second), (first,)),
    ):
        assert copies.due(asked, now, wait_s=4.0) == due
        copies.note(due, now)
    copies.note((second,), 5.0)
    assert copies.due((first, second), 8.4, wait_s=4.0) == ()
    assert copies.due((first, second), 8.4, wait_s=0.0) == (first, second)  # no crowd


def test_a_silent_member_of_a_crowd_is_sent_to_more_and_more_slowly():
    """Bug: 64 partners on a busy machine got 30 copies of each envelope."""
    lagging, streams = Lagging(), Streams()
    moments = []
    for step in range(1, 4000):
        streams.sent += 1
        if lagging.due(streams, step * STEP_S, pace_s=3.5, longest_s=14.0):
            moments.append(step * STEP_S)
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    assert gaps[0] < 6.0
    assert 12.0 < gaps[-1] < 14.0 + LAG_S + STEP_S
    streams.acknowledged = 1  # it answers, and is silent again
    lagging.due(streams, 201.0, pace_s=3.5, longest_s=14.0)
    assert lagging.lags["shop"].wait_s < 6.0


def test_acknowledging_one_after_the_other_does_not_get_a_window_of_copies_for_each():
    """Bug: an acknowledgement and the same again, two small frames, cost 256 envelopes."""
    lagging, sent, copies = Lagging(), 300, 0
    for acknowledged in range(sent):
        at = Position(acknowledged, sent, 100)
        found = lagging.asked("shop", at, 0.001 * acknowledged)
        copies += min(found.get("shop", 0), sent - acknowledged)
    assert copies <= 2 * sent


class Crowd:
    """A crowd that greets each other: each member answers one envelope, one after the other."""

    def __init__(self, peers, between_s):
        self.peers, self.between_s, self.now = peers, between_s, 0.0

    @property
    def answered(self):
        return int(self.now / self.between_s)

    @property
    def waiting_peers(self):
        return tuple(f"p{number}" for number in range(self.answered, self.peers))

    def position(self, party):
        return Position(0, 1, 100)


@pytest.mark.parametrize("between_s", [0.1, 0.5, 2.0])
def test_a_crowd_whose_answers_still_come_in_is_late_and_not_lost(between_s):
    """Bug: on a busy machine each of 64 hellos was sent three times, to 32 receivers each time."""
    lagging, crowd = Lagging(), Crowd(64, between_s)
    sent_again = []
    while crowd.answered < crowd.peers - 1:  # the last one never answers
        crowd.now += 0.25
        sent_again += lagging.due(crowd, crowd.now, pace_s=8.9, longest_s=134.0)
    assert sent_again == []
    crowd.between_s, waits_from = crowd.now / crowd.answered, crowd.now
    crowd.peers = crowd.answered + 1
    while not sent_again:
        crowd.now += 0.25
        crowd.between_s = crowd.now / (crowd.peers - 0.5)
        sent_again += lagging.due(crowd, crowd.now, pace_s=8.9, longest_s=134.0)
    assert sent_again == [f"p{crowd.peers - 1}"]
    assert crowd.now <= max(3.0 * waits_from, 20.0)


def test_nobody_of_a_crowd_is_later_than_the_others_before_the_first_answer():
    lagging, crowd = Lagging(), Crowd(64, 1000.0)
    while not lagging.due(crowd, crowd.now, pace_s=14.5, longest_s=112.0):
        crowd.now += 1.0
        assert crowd.now < 120.0
    assert crowd.now > 110.0


def test_a_peer_that_lacks_more_than_one_envelope_does_not_wait_for_the_crowd():
    """Later envelopes wait for the lost one, and the peer takes that for withholding in the end."""
    lagging, streams = Lagging(answer_s=100.0), Streams()
    for step in range(1, 1000):
        streams.sent += 1
        if lagging.due(streams, step * STEP_S, pace_s=3.5, longest_s=134.0):
            break
    assert step * STEP_S < 6.0


def test_what_a_peer_asks_for_is_not_put_off_by_a_copy_that_was_lost():
    """Bug: a copy was not sent again for minutes, although its receiver said that it lacks it."""
    copies, frames = Copies(), (b"lost",)
    copies.note([frames], 0.0)
    assert copies.due([frames], 5.0, wait_s=1000.0) == ()
    asked = {"wait_s": 1000.0, "asked": [frames], "lost_s": 5.0}
    assert copies.due([frames], 4.9, **asked) == ()
    assert copies.due([frames], 5.0, **asked) == (frames,)
    copies.note([frames], 5.0)
    assert copies.due([frames], 5.0, **asked) == ()


def test_whoever_asks_again_in_a_crowd_does_not_wait_for_the_crowd():
    lagging, streams = Lagging(), Streams()
    streams.sent = 3
    lagging.due(streams, 0.0, pace_s=126.0, longest_s=1000.0)
    assert lagging.asked("shop", streams.position("shop"), 1.0) == {"shop": EARLY_MAX}
    assert lagging.asked("shop", streams.position("shop"), 2.0) == {}
    assert lagging.asked("shop", streams.position("shop"), 1.1 + ASKED_S) == {"shop": EARLY_MAX}


def test_a_crowd_is_not_looked_at_every_second():
    """With 512 peers that answer within minutes, looking at all of them took a tenth of a core."""
    looks = []

    class Counted(Streams):
        @property
        def waiting_peers(self):
            looks.append(self.sent)
            return super().waiting_peers

    rounds(Lagging(), Counted(), 64.0, pace_s=128.0)
    assert 4 <= len(looks) <= 64.0 / (128.0 / LOOKS)


def test_a_peer_that_could_not_be_heard_is_not_late():
    lagging, streams = Lagging(), Streams()
    streams.sent = 1
    assert not lagging.due(streams, 0.0, pace_s=0.5)
    assert not lagging.due(streams, LAG_S, pace_s=0.5)  # noted
    lagging.was_busy(20.0)
    assert not lagging.due(streams, 20.0 + 1.9 * LAG_S, pace_s=0.5)
    assert lagging.due(streams, 20.0 + 2.1 * LAG_S, pace_s=0.5)["shop"] == EARLY_MAX
