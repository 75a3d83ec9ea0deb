"""100 kills at random instants over real processes: the same weights, ledgers and payloads."""

from __future__ import annotations

from statistics import median

import pytest

from tests.integration.killing import campaign

NEXT_ROUND_S = 5.0


def test_100_random_kills_leave_no_trace(tmp_path):
    killed, waits, _ = campaign(tmp_path, kills=100, seed=1)
    assert killed.total() == 100
    assert len(killed) == 3  # the broker too
    assert median(waits) <= NEXT_ROUND_S, waits  # single ones depend on how busy the machine is


@pytest.mark.slow
def test_1000_random_kills_leave_no_trace(tmp_path):
    killed, waits, _ = campaign(tmp_path, kills=1000, seed=2)
    assert killed.total() == 1000
    assert all(wait <= NEXT_ROUND_S for wait in waits), waits
