"""hdpvfl_mq/runtime/hub: every frame reaches its run, whether it came before or after the pump."""

from __future__ import annotations

import asyncio

import pytest

from hdpvfl_mq.errors import NetworkError
from hdpvfl_mq.runtime.arrivals import Arrivals
from hdpvfl_mq.runtime.hub import Hub
from hdpvfl_mq.wire.codec import Frames, encode_header
from schemas.envelope import Header
from tests.samples import example


class Wire(Arrivals):
    """A link without a socket."""

    is_new = False

    def take_connected(self) -> bool:
        new, self.is_new = self.is_new, False
        return new

    async def send(self, frames: Frames) -> None:
        raise AssertionError("nothing is sent here")


def frames_of(run: str) -> Frames:
    header = Header(**{**dict(example(Header)), "run": run})
    return (encode_header(header), bytes(64), b"body of " + run.encode())


async def test_frames_reach_their_run_before_and_after_the_pump_starts():
    wire = Wire()
    hub = Hub(wire)
    spring, summer = hub.open("spring"), hub.open("summer")
    await wire.put(frames_of("spring"))
    assert spring.take() == []
    pump = asyncio.create_task(hub.pump())
    await asyncio.sleep(0)
    assert spring.take() == [frames_of("spring")]
    await wire.put(frames_of("summer"))
    assert summer.take() == [frames_of("summer")]  # at once: no task in between
    assert wire.waiting == 0
    await wire.put(frames_of("autumn"))
    await wire.put((b"noise",))
    assert (spring.take(), summer.take()) == ([], [])
    pump.cancel()


async def test_a_run_hears_of_connections_and_the_end_of_the_reader_ends_the_pump():
    wire = Wire()
    hub = Hub(wire)
    run = hub.open("spring")
    run.take_connected()
    pump = asyncio.create_task(hub.pump())
    await asyncio.sleep(0)
    wire.is_new = True
    wire.wake.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (hub.connections, run.take_connected()) == (1, True)

    async def broken() -> None:
        raise OSError("the reader broke")

    wire.watch(asyncio.create_task(broken()))
    with pytest.raises(NetworkError, match="reading from the network ended"):
        await asyncio.wait_for(pump, 5.0)


def test_what_a_slow_run_has_not_read_is_bounded_in_bytes(monkeypatch):
    """Bug: 4096 envelopes of 16 MiB could wait in memory for one run."""
    monkeypatch.setattr("hdpvfl_mq.runtime.arrivals.OFFERED_BYTES_MAX", 10_000)
    run = Hub(Wire()).open("spring")
    large = (b"header", bytes(64), b"body", bytes(1000))
    for _ in range(100):
        run.offer(large)
    assert run.waiting == 10
    assert run.take() == [large] * 10
    run.offer(large)
    assert run.take() == [large]
