"""A release that waits for those of other peers needs no commit of its own."""

from __future__ import annotations

import pytest

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.node import node_snapshot, uncommitted
from schemas.messages import Residual
from tests.samples import example
from tests.unit.node.node_bench import PAUSE, messages

RESIDUAL = example(Residual)


def test_a_release_without_an_answer_is_committed_with_the_next_answer(bench):
    before = bench.stored()
    turn = bench.node.turn([bench.bank.say(RESIDUAL)])
    assert bench.node.state[-1] == "residual"
    assert (turn.send, turn.arm, bench.log.events) == ((), (), [])
    assert turn.waits  # so its acknowledgement may wait too
    assert bench.stored() == before
    bench.node.turn([bench.bank.say(RESIDUAL)])
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert messages(turn) == ["score_share", "withdraw"]
    assert not turn.waits
    assert bench.log.events == ["reserve", "enter", "book", "commit"]
    assert len(bench.stored()) == len(before) + 3


def test_large_releases_do_not_wait_in_memory(bench, monkeypatch):
    """Bug: while one party withheld its share, those of all others were in memory twice."""
    first = bench.bank.say(RESIDUAL)
    monkeypatch.setattr(uncommitted, "WAITING_BYTES_MAX", 1.5 * sum(map(len, first)))
    bench.node.turn([first])
    assert bench.log.events == []
    bench.node.turn([bench.bank.say(RESIDUAL)])
    assert bench.log.events == ["commit"]
    bench.node.turn([bench.bank.say(RESIDUAL)])
    assert bench.log.events == ["commit"]


def test_nothing_is_acknowledged_before_it_is_on_disk(bench):
    before, frames = bench.stored(), bench.bank.say(RESIDUAL)
    bench.node.turn([frames])
    bench.log.fail = "commit"
    with pytest.raises(OperatorError, match="full at commit"):
        bench.node.acknowledgement()
    bench.log.fail = ""
    bench.restart().start()
    bench.log.events.clear()
    bench.node.turn([frames])
    assert bench.node.acknowledgement() is not None
    assert bench.log.events == ["commit"]
    assert len(bench.stored()) == len(before) + 2  # the second start and the release


def test_no_request_for_a_part_acknowledges_what_is_not_on_disk(bench):
    bench.node.turn([bench.bank.say(RESIDUAL)])
    bench.node.ask_again()
    assert bench.log.events == ["commit"]


def test_a_crash_before_the_commit_is_as_if_it_had_not_arrived(bench):
    frames = bench.bank.say(RESIDUAL)
    bench.node.turn([frames])
    node = bench.restart()
    assert "residual" not in node.state
    node.start()
    node.turn([frames])
    assert node.state[-1] == "residual"


def test_a_message_that_is_no_release_is_committed_at_once(bench):
    bench.node.role.script = {}
    bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.log.events == ["commit"]


def test_there_is_no_snapshot_of_what_is_not_on_disk(bench):
    bench.node.turn([bench.bank.say(RESIDUAL)])
    assert node_snapshot.take(bench.node) is None
