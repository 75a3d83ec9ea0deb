"""A network that resets, freezes, delays, cuts and flips only delays: the same weights, once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import PartyServiceSettings
from tests.integration.proxy import KINDS, Proxy, schedule
from tests.integration.standing import Services, standing

QUICK = (0, 4)
SCHEDULES = int(os.environ.get("SCHEDULES", "200"))
HEALING_S = 10.0
LOOK_MAX_S = 0.5
LONG = {"guarantee": "none", "epochs": 40}


async def through_proxies(services: Services) -> dict[str, Proxy]:
    """Every party reaches the broker through a proxy of its own."""
    proxies = {}
    for name in services.demo.parties:
        path = services.demo.service(name)
        settings = load_settings(PartyServiceSettings, path)
        proxies[name] = Proxy(int(settings.broker.rsplit(":", 1)[1]))
        address = f"tcp://127.0.0.1:{await proxies[name].open()}"
        changed = PartyServiceSettings(**{**fields_of(settings), "broker": address})
        path.write_text(dump_settings(changed))
    return proxies


async def endure(services: Services, proxies: dict[str, Proxy], seed: int) -> tuple[float, list]:
    """One run through one schedule: how long it stood still after the last fault; the faults."""
    run, clock = f"s{seed}", asyncio.get_running_loop().time
    for number, proxy in enumerate(proxies.values()):
        proxy.healed_at = 0.0
        proxy.arm(schedule(2 * seed + number))
    await services.propose(run)
    moved, looked, still, stalled = -1, clock(), 0.0, 0.0
    while services.run("active", run)["phase"] != "over":
        at, now = services.run("active", run).get("round", 0), clock()
        # While this process is stopped or gets no processor, nothing can move.
        still, looked = still + min(now - looked, LOOK_MAX_S), now
        healed = max(proxy.healed_at for proxy in proxies.values())
        if at != moved or now < healed:
            moved, still = at, 0.0
        stalled = max(stalled, still)
        assert stalled < 60.0, (seed, services.run("active", run))
        await asyncio.sleep(0.05)
    for proxy in proxies.values():
        proxy.disarm()
    seen = await services.phase(run, "over")
    assert {each["outcome"] for each in seen.values()} == {"completed"}, (seed, seen)
    return stalled, [kind for proxy in proxies.values() for kind in proxy.happened]


async def through(tmp_path: Path, seeds: Iterable[int]) -> tuple[float, Counter[str]]:
    longest, happened = 0.0, Counter[str]()
    async with standing(tmp_path, start=False, **LONG) as services:
        proxies = await through_proxies(services)
        await services.start()
        await services.propose("calm")
        await services.phase("calm", "over")
        calm = {name: services.model(name, "calm") for name in services.demo.parties}
        for seed in seeds:
            stalled, kinds = await endure(services, proxies, seed)
            longest = max(longest, stalled)
            print(f"schedule {seed}: {kinds}, stood still for {stalled:.1f} s")
            happened.update(kinds)
            for name in services.demo.parties:
                assert services.model(name, f"s{seed}") == calm[name], f"schedule {seed}"
        for proxy in proxies.values():
            proxy.close()
    return longest, happened


async def test_a_bad_network_only_delays(tmp_path):
    _, happened = await through(tmp_path, QUICK)
    assert set(happened) == set(KINDS), happened


@pytest.mark.slow
async def test_many_schedules_of_a_bad_network(tmp_path):
    longest, happened = await through(tmp_path, range(1000, 1000 + SCHEDULES))
    print(
        f"{SCHEDULES} schedules, {dict(happened)}; longest standstill after healing {longest:.1f} s"
    )
    assert longest < HEALING_S
