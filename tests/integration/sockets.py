"""A federation on real sockets in one event loop: broker, parties, and room for guests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import zmq
import zmq.asyncio
from zmq.utils import z85

from broker.process.switchboard import Service
from hdpvfl_mq.app.demo.prepare import free_port
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.runner import Runner, Stopped
from hdpvfl_mq.runtime.transport import DealerLink
from schemas.config import BrokerSettings, Member
from schemas.ids import COORDINATOR
from tests.federation import Federation

WAIT_S = 60.0


def new_curve_secret() -> bytes:
    return z85.decode(zmq.curve_keypair()[1])


class SocketFederation(Federation):
    """Nodes of the simulated federation, each behind a DEALER; the broker is the real service."""

    def open(self, folder: Path) -> Service:
        """Bind the broker; needs a running loop."""
        self.curve = {p: Keys(key, new_curve_secret()) for p, key in self.keys.items()}
        self.settings = BrokerSettings(
            bind=f"tcp://127.0.0.1:{free_port()}",
            keys="unused",
            manifest="unused",
            runs=str(folder),
            members=tuple(
                Member(
                    party=p,
                    role=self.roles[p],
                    verify_key=self.curve[p].verify_hex,
                    curve_key=self.curve[p].curve_public.hex(),
                )
                for p in self.parties
            ),
        )
        self.service = Service(self.settings, self.manifest, self.curve[COORDINATOR])
        self.live, self.runners = {}, {}
        self.tasks = {COORDINATOR: asyncio.create_task(self.service.run())}
        return self.service

    @property
    def broker_key(self) -> bytes:
        return self.curve[COORDINATOR].curve_public

    def link(self, party: str) -> DealerLink:
        return DealerLink(self.settings.bind, self.curve[party], self.broker_key)

    def join(self, party: str) -> None:
        """Start a party."""
        node = self.live[party] = self.node(party)
        node.open()
        self.tasks[party] = asyncio.create_task(self._live(party, node))

    async def _live(self, party: str, node) -> str:
        link = self.link(party)
        try:
            runner = Runner(node, link, patience_s=WAIT_S, observe=lambda node: None)
            self.runners[party] = runner
            return await runner.run()
        finally:
            link.close()

    async def leave(self, party: str) -> None:
        """Stop a party as Ctrl-C does; cancelling its task may get lost in asyncio.wait_for."""
        self.runners[party].stop()
        with contextlib.suppress(Stopped):
            await asyncio.wait_for(self.tasks.pop(party), WAIT_S)

    async def end(self) -> dict[str, str]:
        """Everybody's outcome; if it does not come, the failure says where everybody stands."""
        all_ended = asyncio.gather(*self.tasks.values())
        # A broker whose last acknowledgement got lost with its party's connection stays a minute.
        await asyncio.wait([all_ended], timeout=2 * WAIT_S)
        assert all_ended.done(), self.standing()
        outcomes = all_ended.result()
        return dict(zip(self.tasks, outcomes, strict=True))

    def standing(self) -> str:
        """Where the coordinator and the parties stand, for a test that waits in vain."""
        router, lines = self.service.router, []
        lines.append(f"bound {router._bound}, before {router._before}, epochs {router._epochs}")
        for name, node in {**self.live, COORDINATOR: self.service.node}.items():
            box = node.mailbox
            marks = [(m.party, m.received, m.sent, m.acknowledged) for m in box.marks()]
            lines.append(
                f"{name}: {type(node.state).__name__} {node.outcome}, streams {marks}, "
                f"awaits {box.awaited_peers}, owes {box.owes}, refused {self.refusals(name)[-5:]}"
            )
        return "\n".join(lines)

    def refusals(self, party: str = COORDINATOR) -> list[str]:
        journal = self.service.node._journal if party == COORDINATOR else self.journals[party]
        return [reason for _, reason in journal.refusals()]

    def count_refused(self, words: str, party: str = COORDINATOR) -> int:
        return sum(words in reason for reason in self.refusals(party))

    async def refused(self, words: str, party: str = COORDINATOR) -> str:
        """The recorded refusal with these words, once it is there."""
        return await until(lambda: next((r for r in self.refusals(party) if words in r), None))

    def final_weights(self) -> dict:
        return {p: node.state.trained.rounds.final_weights for p, node in self.live.items()}


async def until(found, what: str = ""):
    """Poll for something that must come."""
    for _ in range(int(WAIT_S / 0.02)):
        if (value := found()) not in (None, False):
            return value
        await asyncio.sleep(0.02)
    raise AssertionError(f"did not come {what}")


@contextlib.contextmanager
def guest(
    endpoint: str, *, server_key: bytes | None = None, secret: bytes | None = None
) -> Iterator[zmq.asyncio.Socket]:
    """A DEALER of somebody else's making; without `server_key` it speaks no CURVE."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    if server_key is not None:
        secret = secret or new_curve_secret()
        socket.curve_serverkey = z85.encode(server_key)
        socket.curve_secretkey = z85.encode(secret)
        socket.curve_publickey = zmq.curve_public(z85.encode(secret))
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        context.destroy(linger=0)


async def throw(socket: zmq.asyncio.Socket, frames: tuple[bytes, ...]) -> None:
    """Send without waiting: a guest whose handshake was refused by now has nobody to send to."""
    with contextlib.suppress(zmq.Again):
        await socket.send_multipart(frames, flags=zmq.NOBLOCK)
