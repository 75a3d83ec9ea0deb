"""Two durable writes at the same time: one in a thread of its own, one in the caller's.

It owns the thread; it knows no file. SQLite waits for the disk without the interpreter's lock, so
two files are synced in the time of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class _Aside:
    """What one call gives the thread to do. Each call waits for its own work and no other."""

    def __init__(self, work: Work) -> None:
        self._work, self._running = work, threading.Lock()
        self._running.acquire()  # a semaphore's lock, in Python, takes ten times as long
        self._failed: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as failed:  # noqa: BLE001 - raised by the caller, in its thread
            self._failed = failed
        self._running.release()

    def wait(self) -> None:
        """Return when the work is done; raises what it raised."""
        self._running.acquire()
        if self._failed is not None:
            raise self._failed


class Beside:
    """Calls two functions at once and returns when both have returned."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._given: SimpleQueue[_Aside] = SimpleQueue()
        self._lock = threading.Lock()  # one pair at a time

    def __call__(self, aside: Work, here: Work) -> None:
        """Run `aside` in the thread and `here` in the caller's; raises what either raised.

        It waits for both even if one fails. If both fail, the error of `aside` is raised.
        """
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._begin()
            given = _Aside(aside)
            self._given.put(given)
            try:
                here()
            finally:
                given.wait()

    def _begin(self) -> None:
        """Start the thread, with a new queue.

        A forked process has no such thread, but its copy of the queue still counts the parent's
        thread as waiting: work put into it would wake nobody.
        """
        self._given = SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._given,), name="beside", daemon=True
        )
        self._thread.start()


def _serve(given: SimpleQueue[_Aside]) -> None:
    while True:
        given.get().run()


BESIDE = Beside()  # a process takes one turn at a time
