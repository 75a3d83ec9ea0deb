"""Two durable writes at the same time: one in a thread of its own, one in the caller's.

It owns the thread; it knows no file. SQLite waits for the disk without the interpreter's lock, so
two files are synced in the time of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[], None]


class Beside:
    """Calls two functions at once and returns when both have returned."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._given, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._lock = threading.Lock()  # one pair at a time
        self._work: Work | None = None
        self._failed: BaseException | None = None

    def __call__(self, aside: Work, here: Work) -> None:
        """Run `aside` in the thread and `here` in the caller's; raises what either raised.

        It waits for both even if one fails. If both fail, the error of `aside` is raised.
        """
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._begin()
            self._work, self._failed = aside, None
            self._given.release()
            try:
                here()
            finally:
                self._done.acquire()
                if self._failed is not None:
                    raise self._failed

    def _begin(self) -> None:
        """Start the thread. A fork has none, and its semaphores still count the parent's waiter.

        A release would wake that waiter, which does not exist here, and nobody else.
        """
        self._given, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._serve, name="beside", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self._given.acquire()
            try:
                assert self._work is not None
                self._work()
            except BaseException as failed:  # noqa: BLE001 - raised by the caller, in its thread
                self._failed = failed
            self._work = None
            self._done.release()


BESIDE = Beside()  # a process takes one turn at a time
