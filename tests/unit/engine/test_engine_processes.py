"""Workers of one host: order, replacement, what they hold, and what they never say."""

from __future__ import annotations

import gc
import operator
import os
import pickle
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.engine import channel
from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import Job, LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.shared_rows import SharedFile
from hdpvfl_mq.engine.worker import Call, Failure
from hdpvfl_mq.engine.worker_process import WorkerProcess
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.glm import block
from hdpvfl_mq.glm.block import ColumnBlock

pytestmark = pytest.mark.seconds

SECRET = 0.123456789
PARTS = [slice(start, start + 5) for start in range(0, 100, 5)]


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    engine = ProcessEngine(2)
    yield engine
    engine.close()


def filled(engine: ProcessEngine):
    rows = engine.allocate_rows((100, 3), np.float64)
    rows.X[:] = np.arange(300.0).reshape(100, 3) + SECRET
    return rows


def test_results_come_in_the_order_of_the_blocks(engine: ProcessEngine) -> None:
    rows, h = filled(engine), np.arange(100.0)
    found = list(rows.each(np.dot, PARTS, given=(np.ones(3),)))
    assert np.array_equal(np.concatenate(found), rows.X @ np.ones(3))
    sums = list(rows.each(block._gradient, PARTS, along=(h,)))
    assert np.array_equal(sums, [h[part] @ rows.X[part] for part in PARTS])
    pieces = ((part,) for part in PARTS)
    assert list(engine.each(operator.attrgetter("stop"), pieces)) == [part.stop for part in PARTS]


@pytest.mark.parametrize(("parts", "workers"), [(1, 2), (20, 2), (287, 2), (32, 7), (5, 64)])
def test_runs_of_blocks_shorten_towards_the_end(parts: int, workers: int) -> None:
    blocks = tuple(slice(number, number + 1) for number in range(parts))
    runs = Job(np.sum, blocks, (np.arange(parts),)).runs(workers, each=6)
    assert [part for run in runs for part in run.parts] == list(blocks)
    assert [entry for run in runs for entry in run.along[0]] == list(range(parts))
    sizes = [len(run.parts) for run in runs]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == -(-parts // (6 * workers))
    assert sizes[-1] == 1


def test_a_worker_killed_between_jobs_is_replaced(engine: ProcessEngine) -> None:
    rows = filled(engine)
    expected = [part.tolist() for part in rows.each(np.sum, PARTS)]
    killed = engine.pids
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    for pid in killed:  # all are gone before the next job, so every first hand-over fails
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert [part.tolist() for part in rows.each(np.sum, PARTS)] == expected
    assert not set(killed) & set(engine.pids)


def test_rows_are_dropped_although_the_workers_that_held_them_died(engine: ProcessEngine) -> None:
    rows = filled(engine)
    list(rows.each(np.sum, PARTS))
    for pid in engine.pids:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    del rows
    gc.collect()
    assert len(list(filled(engine).each(np.sum, PARTS))) == len(PARTS)


def test_a_worker_ends_with_its_connection() -> None:
    worker = WorkerProcess()
    assert worker.ask(0, Call(np.size, (0,)))
    assert channel.receive(worker.connection) == [1]
    worker.end()
    assert worker.process.returncode == 0
    assert not worker.ask(1, Call(np.size, (0,)))


def test_blocks_that_always_kill_their_worker_stop_the_party(engine: ProcessEngine) -> None:
    deadly = partial(max, signal.SIGKILL, key=signal.raise_signal)  # coverage replaces os._exit
    with pytest.raises(OperatorError, match="died 3 times while computing"):
        list(engine.each(deadly, [(0,), (1,)]))
    assert list(engine.each(np.size, [(0,), (1,)])) == [1, 1]


def test_an_iteration_that_is_left_leaves_no_answer_behind(engine: ProcessEngine) -> None:
    rows = filled(engine)
    for _ in rows.each(np.sum, PARTS):
        break
    gc.collect()
    assert len(list(rows.each(np.sum, PARTS))) == len(PARTS)


def test_a_failure_shows_no_value(engine: ProcessEngine, capfd: pytest.CaptureFixture) -> None:
    rows = filled(engine)
    with pytest.raises(OperatorError) as told:
        list(rows.each(np.linalg.inv, PARTS, given=(np.array([SECRET]),)))
    shown = [str(told.value), repr(told.value), *capfd.readouterr()]
    assert "could not compute inv: TypeError" in shown[0]
    job = Job(np.sum, tuple(PARTS), (rows.X[:, 0],), (rows.X,))
    columns = ColumnBlock(rows)
    shown += [repr(each) for each in (job, rows, engine, columns, Failure("TypeError"))]
    shown += [repr(LocalEngine().allocate_rows((2, 2), np.float64)), repr(rows.file)]
    assert not [text for text in shown if "1234" in text]


def test_rows_are_not_pickled(engine: ProcessEngine) -> None:
    with pytest.raises(TypeError, match="cannot leave"):
        pickle.dumps(filled(engine))


def test_workers_let_go_of_rows_that_are_gone(engine: ProcessEngine) -> None:
    rows = filled(engine)
    list(rows.each(np.sum, PARTS))
    held = [worker.held for worker in engine._workers]
    number = rows.number
    assert all(number in numbers for numbers in held)
    del rows
    gc.collect()
    list(filled(engine).each(np.sum, PARTS))
    assert not any(number in numbers for numbers in held)


def test_rows_on_disk_have_no_name(tmp_path: Path) -> None:
    rows = ProcessEngine(2, DiskSpace(tmp_path / "rows")).allocate_rows((10, 2), np.float32)
    rows.X[:] = 1.0
    assert isinstance(rows.file, SharedFile)
    assert list((tmp_path / "rows").iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OperatorError, match="has no room for"):
        ProcessEngine(2, DiskSpace(tmp_path)).allocate_rows((10, 2), np.float32)


def test_an_answer_that_memory_cannot_hold_is_not_read_from_its_middle(
    engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the numbers of an array were taken for the next message, which never ended."""
    pieces = [(np.full(4096, 0.5 + number),) for number in range(8)]

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as small:
        small.setattr(np, "empty", full)
        with pytest.raises(MemoryError):
            list(engine.each(np.negative, pieces))
    found = list(engine.each(np.negative, pieces))
    assert np.array_equal(found, [-values for (values,) in pieces])
