"""Every gap has clocks of its own; the clock is a number that the test moves."""

from __future__ import annotations

import pytest

from hdpvfl_mq.machine import OFFENCE_S
from hdpvfl_mq.runtime.gaps import LACK_S, TOGETHER_S, Gaps


def asked(gaps, until):
    """When each peer is asked, until this time."""
    found = []
    while gaps.next_at is not None and gaps.next_at <= until:
        now = gaps.next_at
        found += [(party, now) for party in gaps.due(now)]
    return found


def test_a_member_that_leaves_a_gap_open_does_not_delay_what_others_are_asked_for():
    """Bug: all gaps had one clock, which slowed down to half a minute for as long as one lasted."""
    gaps, missing = Gaps(), {"mallory": 7, "shop": 3}
    gaps.note("mallory", 7, 0.0, 15.0)
    gaps.look(missing.get, 0.0)
    assert [now for _, now in asked(gaps, 40.0)] == [2.0, 6.0, 14.0, 30.0]
    gaps.note("shop", 3, 40.0, 15.0)
    gaps.look(missing.get, 40.0)
    assert asked(gaps, 50.0) == [("shop", 40.0 + LACK_S), ("shop", 40.0 + 3 * LACK_S)]
    missing["shop"] = 4  # the next one is missing now
    gaps.note("shop", 4, 50.0, 15.0)
    gaps.look(missing.get, 50.0)
    assert gaps.next_at == 50.0 + LACK_S
    missing["shop"] = None
    gaps.look(missing.get, 51.0)
    assert gaps.next_at == 60.0


@pytest.mark.parametrize(
    ("later_s", "first"), [(TOGETHER_S, ("bank", "shop")), (TOGETHER_S + 0.1, ("bank",))]
)
def test_peers_are_asked_together_if_their_gaps_began_together(later_s, first):
    gaps, missing = Gaps(), {"bank": 1}
    gaps.note("bank", 1, 0.0, 15.0)
    gaps.look(missing.get, 0.0)
    missing["shop"] = 1
    gaps.note("shop", 1, later_s, 15.0)
    gaps.look(missing.get, later_s)
    assert gaps.due(LACK_S) == first


def test_a_gap_lasts_by_itself():
    gaps = Gaps()
    for now in (0.0, 14.9):
        gaps.note("bank", 1, now, 15.0)
    gaps.note("shop", 1, 14.9, 15.0)
    gaps.note("bank", 1, 15.0, 15.0)
    gaps.note("shop", 1, 15.0, 15.0)
    assert gaps.take_lasting() == ("bank",)
    assert gaps.take_lasting() == ()
    assert gaps.noted == {"bank": (1, 15.0), "shop": (1, 14.9)}
    gaps.note("shop", None, 16.0, 15.0)
    assert gaps.noted == {"bank": (1, 15.0)}


def test_a_gap_that_lasts_is_asked_for_at_least_once_before_its_peer_is_named():
    """Bug: a node asked no more as soon as it held the gap against its peer."""
    gaps = Gaps()
    gaps.note("bank", 1, 0.0, 15.0)
    gaps.look(lambda party: 1, 0.0)
    assert [now for _, now in asked(gaps, 15.0)] == [2.0, 6.0, 14.0]
    gaps.note("bank", 1, 15.5, 15.0)
    gaps.look(lambda party: 1, 15.5)
    assert gaps.take_lasting() == ("bank",)
    assert gaps.next_at == 15.5 + LACK_S < 15.5 + OFFENCE_S


def test_an_envelope_that_must_wait_has_not_waited_while_it_was_missing():
    """Bug: a residual that was lost for 14 s was before its time for too long one second later."""
    gaps = Gaps()
    for now in (0.0, 14.0):
        gaps.note("bank", 7, now, 15.0)
    for now in (14.5, 15.5, 29.4):
        gaps.stop("bank", 7, now, 15.0)
        assert gaps.take_lasting() == ()
    gaps.stop("bank", 7, 29.5, 15.0)
    assert gaps.take_lasting() == ("bank",)
    gaps.note("bank", 8, 30.0, 15.0)
    gaps.stop("bank", 8, 31.0, 15.0)
    assert gaps.noted == {"bank": (8, 31.0)}
