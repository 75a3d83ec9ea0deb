"""A ZeroMQ socket in an event loop: no message is lost or left lying, whatever else is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
import zmq

from hdpvfl_mq.runtime.loop_socket import LoopSocket

PATIENCE_S = 5.0


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    with zmq.Context() as made:
        yield made
        made.destroy(linger=0)


def pair(context: zmq.Context) -> tuple[LoopSocket, zmq.Socket]:
    """A socket of the loop and the plain one at the other end."""
    mine, other = LoopSocket(context, zmq.DEALER), context.socket(zmq.DEALER)
    port = mine.plain.bind_to_random_port("tcp://127.0.0.1")
    other.connect(f"tcp://127.0.0.1:{port}")
    return mine, other


async def received(socket: LoopSocket) -> list[bytes]:
    frames = await asyncio.wait_for(socket.receive(), PATIENCE_S)
    return [frame.bytes for frame in frames]


async def test_messages_arrive_whole_and_in_order(context):
    mine, other = pair(context)
    for number in range(200):
        other.send_multipart([b"head", str(number).encode(), b""])
    assert [await received(mine) for _ in range(200)] == [
        [b"head", str(number).encode(), b""] for number in range(200)
    ]
    mine.close()


async def test_sending_does_not_take_the_signal_of_what_has_arrived(context):
    mine, other = pair(context)
    other.send(b"first")
    assert await received(mine) == [b"first"]
    for number in range(20):
        waiting = asyncio.create_task(mine.receive())
        await asyncio.sleep(0)  # it waits for the descriptor now
        other.send(b"%d" % number)
        time.sleep(0.01)  # the message arrives while the loop is busy
        mine.send([b"out", b"%d" % number])
        mine.look()
        frames = await asyncio.wait_for(waiting, PATIENCE_S)
        assert [frame.bytes for frame in frames] == [b"%d" % number]
        assert other.recv_multipart() == [b"out", b"%d" % number]
    mine.close()


async def test_a_cancelled_read_loses_nothing(context):
    mine, other = pair(context)
    for number in range(20):
        waiting = asyncio.create_task(mine.receive())
        await asyncio.sleep(0)
        other.send(b"%d" % number)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await received(mine) == [b"%d" % number]
    mine.close()


async def test_a_reader_that_never_waits_lets_other_tasks_run(context):
    mine, other = pair(context)
    for _ in range(500):
        other.send(b"flood")
    await asyncio.sleep(0.2)  # all of it is on this side
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(500):
        await mine.receive()
    counting.cancel()
    assert turns >= 3
    mine.close()


async def test_a_full_queue_is_said_at_once(context):
    mine = LoopSocket(context, zmq.DEALER)
    mine.plain.bind_to_random_port("tcp://127.0.0.1")  # nobody connects: there is no queue
    with pytest.raises(zmq.Again):
        mine.send([b"head", b"body"])
    mine.close()


async def test_a_message_that_goes_with_its_connection_is_waited_for_no_longer(context):
    """Bug: with 512 parties on one machine a reader ended, and with it its process."""
    mine, other = pair(context)

    class Vanishing:
        """A socket whose first message is gone when it is read."""

        def __init__(self, socket):
            self._socket, self._lost = socket, 1

        def __getattr__(self, name):
            return getattr(self._socket, name)

        def recv(self, *arguments, **options):
            if self._lost:
                self._lost -= 1
                raise zmq.Again
            return self._socket.recv(*arguments, **options)

    mine.plain = Vanishing(mine.plain)
    other.send_multipart([b"one", b"two"])
    assert await received(mine) == [b"one", b"two"]
    mine.close()
