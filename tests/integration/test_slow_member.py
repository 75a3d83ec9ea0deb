"""A member that is slow or away delays the runs it takes part in, and nothing else."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial

from parties.__main__ import main as party_main
from schemas.ids import COORDINATOR
from tests.integration.forked import Served
from tests.integration.processes import environment
from tests.integration.standing import standing, until

SLOW = "passive-3"
OTHERS = ("active", "passive-1", "passive-2")


async def test_a_stopped_process_costs_only_the_runs_that_need_it(tmp_path):
    async with standing(tmp_path, start=False, passives=3) as services:
        slow = Served(
            partial(party_main, services.demo.service(SLOW)),
            out=tmp_path / "slow.log",
            cwd=tmp_path,
            environment=environment(),
        )
        try:
            await services.start(COORDINATOR, *OTHERS)
            broker = services.live[COORDINATOR]
            federation = services.demo.federation
            await until(lambda: SLOW in connected(broker, federation), "the connection")
            began = time.monotonic()
            await without(services, "calm")
            calm_s = time.monotonic() - began

            slow.send_signal(signal.SIGSTOP)
            await services.propose("needs-it")
            began = time.monotonic()
            for run in ("one", "two"):
                await without(services, run)
            # Twice the work of the calm run; machines that run tests are busy.
            assert time.monotonic() - began < 4 * calm_s + 5.0
            assert services.run("active", "needs-it")["waiting_for"] == [SLOW]
            status = await services.ask(COORDINATOR, "status")
            assert max(each["queue_messages"] for each in status["queues"].values()) < 100

            slow.send_signal(signal.SIGCONT)
            seen = await services.phase("needs-it", "over", parties=OTHERS)
            assert {each["outcome"] for each in seen.values()} == {"completed"}
            slow.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(slow.wait, 60) == 130
        finally:
            slow.kill()


def connected(broker, federation: str) -> list[str]:
    return broker.status()["federations"][federation]["connected"]


async def without(services, run: str) -> None:
    """A run of the others."""
    await services.propose(run, passive_parties=("passive-1", "passive-2"))
    seen = await services.phase(run, "over", parties=OTHERS)
    assert {each["outcome"] for each in seen.values()} == {"completed"}
