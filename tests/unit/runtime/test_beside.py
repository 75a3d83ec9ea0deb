"""Two writes at the same time: both are awaited, and either may fail."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hdpvfl_mq.runtime.beside import Beside


def fail(text: str):
    def work() -> None:
        raise OSError(text)

    return work


def test_both_run_at_the_same_time_and_one_of_them_here():
    meeting, seen = threading.Barrier(2, timeout=10), []

    def work() -> None:
        meeting.wait()  # passes only if the other one runs too
        seen.append(threading.current_thread())

    beside = Beside()
    for _ in range(3):
        beside(work, work)
    assert len(seen) == 6
    assert set(seen) == {threading.current_thread(), beside._thread}


@pytest.mark.parametrize("slow_first", [True, False])
def test_it_waits_for_the_other_when_one_fails(slow_first):
    done = threading.Event()

    def slow() -> None:
        threading.Event().wait(0.05)
        done.set()

    pair = (slow, fail("no space")) if slow_first else (fail("no space"), slow)
    with pytest.raises(OSError, match="no space"):
        Beside()(*pair)
    assert done.is_set()


def test_if_both_fail_one_error_is_raised_and_the_next_pair_runs():
    beside, seen = Beside(), []
    with pytest.raises(OSError, match="ledger"):
        beside(fail("ledger"), fail("journal"))
    beside(lambda: seen.append(1), lambda: seen.append(2))
    assert sorted(seen) == [1, 2]


def test_a_forked_process_starts_a_thread_of_its_own():
    """Bug: the fork's semaphore woke the waiting thread of the parent, and a commit never ended."""
    beside, pause = Beside(), threading.Event()
    beside(lambda: None, lambda: None)
    pause.wait(0.05)  # now the thread waits for work
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends a process that hangs
        seen: list[int] = []
        for _ in range(3):
            beside(lambda: seen.append(1), lambda: seen.append(2))
            pause.wait(0.05)
        os._exit(0 if sorted(seen) == [1, 1, 1, 2, 2, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_after_an_interrupted_wait_the_next_pair_waits_for_its_own_work():
    """Bug: the end of the earlier work counted for the next: frames left before their booking."""
    beside, slow, done = Beside(), threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    interrupt = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            beside(slow.wait, lambda: None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    slow.set()

    def write() -> None:
        threading.Event().wait(0.1)
        done.set()

    beside(write, lambda: None)
    assert done.is_set()
