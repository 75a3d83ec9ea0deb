"""The broker's process: one ROUTER socket, the router, and the coordinator behind it.

It owns the sockets and the tasks; what may pass is the router's business, what a run does next the
coordinator's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from nacl.signing import VerifyKey

from broker.coordinator import Coordinator
from broker.router import Routed, Router
from hdpvfl_mq.errors import PeerError, SettingsError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.runtime.keys import Keys, load_keys
from hdpvfl_mq.runtime.runner import Runner
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.snapshots import Snapshots
from hdpvfl_mq.runtime.status import Status
from hdpvfl_mq.runtime.transport import Arrivals, Gate
from hdpvfl_mq.wire.codec import Frames, model_digest
from schemas.config import BrokerSettings, RunManifest
from schemas.ids import COORDINATOR

# After the end, how long a party that is being started again may take to come and hear of it.
FAREWELL_S = 60.0


class LocalLink(Arrivals):
    """The coordinator's link: through the router, without a socket."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    def take_connected(self) -> bool:
        """The coordinator is always connected."""
        return False

    async def send(self, frames: Frames) -> None:
        """Into the router."""
        await self._service.forward(frames, self._service.router.from_coordinator(frames))


class Service:
    """Moves frames between connections and the coordinator."""

    def __init__(self, settings: BrokerSettings, manifest: RunManifest, keys: Keys) -> None:
        members = {m.party: m for m in settings.members}
        expected = set(manifest.parties)
        if set(members) != expected:
            raise SettingsError(
                f"members: the manifest needs exactly {', '.join(sorted(expected))}; "
                f"the broker admits {', '.join(sorted(members))}"
            )
        verify = {p: VerifyKey(bytes.fromhex(m.verify_key)) for p, m in members.items()}
        self.folder = Path(settings.runs) / manifest.run / COORDINATOR
        self.folder.mkdir(parents=True, exist_ok=True)
        self.node = Node(
            Coordinator(manifest, model_digest(manifest)),
            Identity(COORDINATOR, "coordinator", manifest.run, keys.signing),
            {p: Contact(m.role, verify[p]) for p, m in members.items()},
            journal=Journal(self.folder / "journal.db", run=manifest.run, party=COORDINATOR),
        )
        self._snapshots = Snapshots(self.folder / "snapshot", keys.signing)
        if (snapshot := self._snapshots.load()) is not None:
            self.node.resume(snapshot)
        self.node.open()
        self.router = Router(manifest.run, verify, epochs=self.node.state.epochs)
        allowed = {bytes.fromhex(m.curve_key): p for p, m in members.items()}
        self._gate = Gate(settings.bind, keys, allowed, refused=self._turned_away)
        self._link = LocalLink(self)
        self._status = Status(self.folder / "status.json")
        self.runner = Runner(
            self.node,
            self._link,
            patience_s=manifest.deadline_s + 60.0,
            observe=self._observe,
            farewell_s=FAREWELL_S,
        )

    async def run(self) -> str:
        """The outcome of the run."""
        reader = self._link.watch(asyncio.create_task(self._read()))
        for task in self._gate.tasks:
            self._link.watch(task)
        self._observe(self.node)
        try:
            outcome = await self.runner.run()
            self._status.write(self.node.role.progress(self.node.state))
            return outcome
        finally:
            reader.cancel()
            self._gate.close()

    async def forward(self, frames: Frames, routed: Routed) -> None:
        """Send frames where the router said."""
        for connection in routed.connections:
            if not await self._gate.send(connection, frames):
                self.router.unreachable(connection)
        if routed.local:
            await self._link.put(frames)

    async def _read(self) -> None:
        while True:
            connection, user, frames = await self._gate.receive()
            try:
                routed = self.router.from_connection(connection, user, frames)
            except PeerError as refused:
                self.node.refuse(frames, f"at the router: {refused}")
                self._link.wake.set()
                continue
            await self.forward(frames, routed)

    def _turned_away(self, reason: str) -> None:
        """Record a connection that did not get in; it sent nothing that could be read."""
        self.node.refuse((), f"at the gate: {reason}")
        self._link.wake.set()

    def _observe(self, node: Node) -> None:
        self._snapshots.see(node)
        if self._status.due() or node.outcome is not None:
            self._status.write(
                {**node.role.progress(node.state), "connected": list(self.router.connected)}
            )


def build_service(settings: BrokerSettings) -> Service:
    """Read the manifest and the keys, open the journal, bind."""
    manifest = load_settings(RunManifest, Path(settings.manifest))
    return Service(settings, manifest, load_keys(Path(settings.keys)))
