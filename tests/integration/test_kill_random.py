"""Kills at random instants over real processes: the same weights, ledgers and payloads."""

from __future__ import annotations

from statistics import median

import pytest

from tests.integration.killing import campaign, snapshot_often

NEXT_ROUND_S = 5.0


def test_12_random_kills_leave_no_trace(tmp_path):
    """The quick form; a thousand are in `make soak`."""
    tally = campaign(tmp_path, kills=12, seed=1, settled=3, epochs=4, before=snapshot_often)
    assert tally.killed.total() == 12
    assert len(tally.killed) == 3  # the broker too
    assert tally.with_snapshot > 0
    # Single ones depend on how busy the machine is; few runs get as far as to have one.
    assert median(tally.waits_s or [0.0]) <= NEXT_ROUND_S, tally.waits_s


@pytest.mark.slow
def test_1000_random_kills_leave_no_trace(tmp_path):
    tally = campaign(tmp_path, kills=1000, seed=2, before=snapshot_often)
    print(
        f"\n{dict(tally.killed)}, {tally.with_snapshot} restarts from a snapshot; seconds from "
        f"{len(tally.waits_s)} restarts to the next round: median {median(tally.waits_s):.1f}, "
        f"longest {max(tally.waits_s):.1f}"
    )
    assert tally.killed.total() == 1000
    assert max(tally.waits_s) <= NEXT_ROUND_S, sorted(tally.waits_s)[-10:]
