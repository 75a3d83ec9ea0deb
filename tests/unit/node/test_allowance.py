"""Bytes of a peer that bring the role no further: what counts, and what a plan limits."""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.node.allowance import Allowance
from schemas.messages import RoundReport
from schemas.scoring import ScoreQuery
from schemas.tensor import Tensor
from tests.samples import sample

REPORT = sample("round_report")


def report(allowance: Allowance, rounds: int) -> None:
    told = RoundReport(**{**dict(REPORT), "rounds_done": rounds})
    allowance.note_taken("shop", told, 100, is_moved=True)


def test_reports_that_tell_the_same_rounds_again_count():
    """Bug: after a report of round 0 all later rounds could be told again without end."""
    allowance = Allowance()
    for _ in range(3):
        for rounds in range(10):
            report(allowance, rounds)
    assert allowance["shop"] == 2 * 10 * 100


def query(count: int) -> ScoreQuery:
    places = Tensor.of(np.arange(count, dtype=np.int64))
    return ScoreQuery(number=1, last=False, places=places)


def test_the_part_of_a_query_that_the_account_refuses_counts():
    """Bug: people whom the account refuses could be asked for until the disk was full."""
    allowance = Allowance()
    for refused, counted in ((b"", 0), (b"\xf0", 400), (b"\xff", 1200)):
        allowance.note_taken("bank", query(8), 800, is_moved=True)
        allowance.note_charged(refused)
        assert allowance["bank"] == counted
    allowance.note_charged(b"\xff")  # no query
    assert allowance["bank"] == 1200
