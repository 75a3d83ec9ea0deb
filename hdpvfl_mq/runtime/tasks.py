"""The tasks of a service: the first failure ends the service, and it ends quickly.

It owns when tasks start and end; it knows nothing of what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from hdpvfl_mq.runtime.process import Stoppable
from hdpvfl_mq.runtime.runner import Stopped

GRACE_S = 1.0  # time for current turns to finish


class Tasks:
    """Tasks that finish their turn before they end, and tasks that can be cancelled at any time."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        self._turning: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that must finish its turn before it ends."""
        self._keep(self._turning, asyncio.create_task(work))

    def start_waiting(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that can be cancelled at any time."""
        self._keep(self._waiting, asyncio.create_task(work))

    def watch(self, task: asyncio.Task[None]) -> None:
        """End the service if this task, started elsewhere, fails."""
        task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Make `until_stopped` return."""
        self._stopped.set()

    async def until_stopped(self) -> None:
        """Wait until `stop` is called or a task fails."""
        await self._stopped.wait()

    async def end(self, pumps: Iterable[Stoppable]) -> None:
        """Let current turns finish, and cancel everything else."""
        for pump in pumps:
            pump.stop()
        for task in self._waiting:
            task.cancel()
        if self._turning:
            _, late = await asyncio.wait(self._turning, timeout=GRACE_S)
            for task in late:
                task.cancel()

    @property
    def failure(self) -> BaseException | None:
        """The error of the first task that failed."""
        return self._failed

    def _keep(self, kind: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        kind.add(task)
        task.add_done_callback(kind.discard)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        failed = None if task.cancelled() else task.exception()
        if failed is not None and not isinstance(failed, Stopped):
            self._failed = self._failed or failed
            self._stopped.set()
