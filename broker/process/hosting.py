"""A node behind the broker's socket: the coordinator of one run, or a federation's registrar.

It owns the node's link, who may send to it, its status and its snapshot; the service owns the
socket.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nacl.signing import VerifyKey

from broker.coordinator import Coordinator
from broker.registrar import Registrar
from broker.router import Routed, Router
from broker.standing import Seat, Standing
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node import node_snapshot
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.runtime.arrivals import Arrivals
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.runner import Runner
from hdpvfl_mq.runtime.snapshots import Snapshots
from hdpvfl_mq.runtime.status import Status
from hdpvfl_mq.wire.codec import Frames, model_digest
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, OLDEST_VERSION, PartyId, RunId

Forward = Callable[["Hosted", Frames, Routed], Awaitable[None]]


class LocalLink(Arrivals):
    """A hosted node's link: frames go through its router, not through a socket."""

    def __init__(self, hosted: Hosted, forward: Forward) -> None:
        super().__init__()
        self._hosted, self._forward = hosted, forward

    def take_connected(self) -> bool:
        """False: a node in the broker is always connected, so no connection is new."""
        return False

    async def send(self, frames: Frames) -> None:
        """Hand the frames to the router, for receivers to whom they were written."""
        hosted = self._hosted
        routed = hosted.router.from_coordinator(frames)
        if strangers := hosted.node.mailbox.strangers(frames):
            theirs = {hosted.router.bound.get(party) for party in strangers}
            left = tuple(each for each in routed.connections if each not in theirs)
            routed = replace(routed, connections=left)
        await self._forward(hosted, frames, routed)


class Hosted:
    """A node, its router and its link."""

    def __init__(self, node: Node, router: Router, forward: Forward) -> None:
        self.node, self.router = node, router
        self.users: dict[str, PartyId] = {}  # hexadecimal key of a connection -> party
        self.link = LocalLink(self, forward)

    def party_of(self, user: str | None) -> PartyId | None:
        """The party, in this federation or run, whose key a connection uses."""
        return self.users.get(user or "")

    def refuse(self, frames: Frames, reason: str) -> None:
        """Record refused frames with the next commit."""
        self.node.refuse(frames, reason)
        self.link.wake.set()


class HostedRun(Hosted):
    """The coordinator of one run."""

    def __init__(
        self,
        manifest: RunManifest,
        seats: Mapping[PartyId, Seat],
        keys: Keys,
        *,
        runs: Path,
        forward: Forward,
    ) -> None:
        self.folder = runs / manifest.run / COORDINATOR
        self.folder.mkdir(parents=True, exist_ok=True)
        verify = {p: VerifyKey(seat.verify_key) for p, seat in seats.items()}
        node = Node(
            Coordinator(manifest, model_digest(manifest)),
            Identity(
                COORDINATOR,
                "coordinator",
                manifest.run,
                keys.signing,
                versions=(manifest.wire, manifest.wire),
            ),
            {p: Contact(seat.role, verify[p], manifest.wire) for p, seat in seats.items()},
            journal=Journal(self.folder / "journal.db", run=manifest.run, party=COORDINATOR),
        )
        self._snapshots = Snapshots(self.folder / "snapshot", keys.signing)
        if (snapshot := self._snapshots.load()) is not None:
            node_snapshot.resume(node, snapshot)
        node.open()
        super().__init__(node, Router(manifest.run, verify, epochs=node.state.epochs), forward)
        self._seats = dict(seats)
        self.admit({})
        self._status = Status(self.folder / "status.json")
        self._closed: Callable[[str, str], None] | None = None

    def admit(self, members: Mapping[PartyId, Seat]) -> None:
        """Admit connections with the keys that the run's parties have now.

        Envelopes of the run are signed with the keys it began with.
        """
        seats = {party: members.get(party, seat) for party, seat in self._seats.items()}
        self.users = {seat.curve_key.hex(): party for party, seat in seats.items()}

    def runner(self, *, patience_s: float, farewell_s: float, tally: Tally | None = None) -> Runner:
        """The pump that drives this run's node."""
        return Runner(
            self.node,
            self.link,
            patience_s=patience_s,
            observe=self.observe,
            farewell_s=farewell_s,
            tally=tally,
        )

    def tell_closed(self, closed: Callable[[str, str], None]) -> None:
        """Call `closed(outcome, reason)` once, when the coordinator has closed the run."""
        self._closed = closed

    def observe(self, node: Node) -> None:
        """Take a snapshot and write the status, where they are due."""
        self._snapshots.see(node)
        if node.outcome is not None and self._closed is not None:
            told, self._closed = self._closed, None
            told(node.outcome, str(node.state.reason))
        if self._status.due() or node.outcome is not None:
            self._status.write(self.fields())

    def fields(self) -> dict[str, Any]:
        """The status fields that the broker's operator may see."""
        progress = self.node.role.progress(self.node.state)
        return {**progress, "connected": list(self.router.bound)}

    def finish(self) -> None:
        """Write the last status."""
        self._status.write(self.fields())


class HostedFederation(Hosted):
    """The registrar of one federation."""

    def __init__(
        self, name: RunId, keys: Keys, *, state: Path, forward: Forward, speaks: int
    ) -> None:
        folder = state / "federations"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = name
        node = Node(
            Registrar(),
            Identity(
                COORDINATOR, "coordinator", name, keys.signing, versions=(OLDEST_VERSION, speaks)
            ),
            {},
            journal=Journal(folder / f"{name}.db", run=name, party=COORDINATOR),
        )
        node.open()
        self.keys_of_members: dict[PartyId, VerifyKey] = {}
        super().__init__(
            node, Router(name, self.keys_of_members, epochs=node.state.epochs), forward
        )
        self.runner: Runner | None = None
        self.admit()

    @property
    def standing(self) -> Standing:
        """The federation's members and runs."""
        state = self.node.state
        assert isinstance(state, Standing)
        return state

    def admit(self) -> None:
        """Admit the connections of the current members."""
        members = self.standing.members
        self.users = {seat.curve_key.hex(): party for party, seat in members.items()}
        for party, seat in members.items():
            known = self.keys_of_members.get(party)
            if known is None or bytes(known) != seat.verify_key:
                self.keys_of_members[party] = VerifyKey(seat.verify_key)
        for party in set(self.keys_of_members) - set(members):
            del self.keys_of_members[party]
            self.router.forget(party)

    def connect(self, observe: Callable[[Node], None], tally: Tally) -> Runner:
        """Create the pump that drives this federation's node."""
        self.runner = Runner(
            self.node,
            self.link,
            patience_s=math.inf,
            observe=observe,
            farewell_s=math.inf,
            tally=tally,
        )
        return self.runner
