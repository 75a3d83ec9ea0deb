"""hdpvfl_mq/runtime/tasks: a service ends quickly, and with the first failure of a task."""

from __future__ import annotations

import asyncio

import pytest

from hdpvfl_mq.runtime.runner import Stopped
from hdpvfl_mq.runtime.tasks import Tasks


class Pump:
    """Ends after the turn in which it is asked to."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.turns = 0

    def stop(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        await self._asked.wait()
        await asyncio.sleep(0.01)
        self.turns += 1
        raise Stopped


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_turns_come_to_their_end_and_waiting_is_cut_off():
    tasks, pump = Tasks(), Pump()
    tasks.start(pump.run())
    tasks.start_waiting(for_ever())
    tasks.stop()
    await tasks.until_stopped()
    await asyncio.wait_for(tasks.end([pump]), 0.9)  # less than the grace of a task that is late
    assert pump.turns == 1
    assert tasks.failure is None


async def test_a_late_task_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hdpvfl_mq.runtime.tasks.GRACE_S", 0.01)
    tasks = Tasks()
    tasks.start(for_ever())
    await tasks.end([])


async def test_the_first_failure_ends_the_service():
    async def fail() -> None:
        raise OSError("disk")

    tasks = Tasks()
    tasks.start(fail())
    await asyncio.wait_for(tasks.until_stopped(), 5.0)
    assert isinstance(tasks.failure, OSError)
