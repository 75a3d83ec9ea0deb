"""The broker's socket and the table of the nodes behind it; and the broker of a single run.

It owns which connections are admitted and which node gets their frames, by the name of the run or
federation in the header; the node decides what to do with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from broker.process.hosting import Hosted, HostedFederation, HostedRun
from broker.router import Routed
from broker.standing import Seat
from hdpvfl_mq.errors import PeerError, SettingsError
from hdpvfl_mq.runtime.gate import Gate, Pace
from hdpvfl_mq.runtime.keys import Keys, load_keys
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.transport import PING, PONG
from hdpvfl_mq.wire.codec import Frames, decode_header
from hdpvfl_mq.wire.versions import SPOKEN, VersionError, check_version, notice
from schemas.config import BrokerSettings, Member, RunManifest
from schemas.envelope import Header
from schemas.ids import COORDINATOR, PartyId, RunId
from schemas.messages import GREETINGS

# After the end of a run, how long a restarting party may take to connect and hear of it.
FAREWELL_S = 60.0
# Messages of one member to its federation: a burst, then one every so often.
WORDS_BURST, WORDS_EVERY_S = 2000.0, 0.2
# Of these, hellos of new processes: the answer to each has the lists of all members.
HELLOS_BURST, HELLOS_EVERY_S = 30.0, 600.0
LOBBY = "lobby:"  # prefix of a guest's user id


class Doors(Mapping[bytes, str]):
    """Keys that may connect; while an invitation is open, any other key connects as a guest."""

    def __init__(self) -> None:
        self.members: dict[bytes, str] = {}
        self.is_lobby_open = False

    def __getitem__(self, key: bytes) -> str:
        if key in self.members or not self.is_lobby_open:
            return self.members[key]
        return LOBBY + key.hex()

    def knows(self, user: str | None) -> bool:
        """Whether the key of a connection belongs to a current member."""
        if user is None or user.startswith(LOBBY):
            return False
        return bytes.fromhex(user) in self.members

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


class Switchboard:
    """The socket and the table of the nodes behind it."""

    def __init__(self, bind: str, keys: Keys) -> None:
        self.doors = Doors()
        self._bind, self.keys = bind, keys
        self.table: dict[RunId, Hosted] = {}
        self._paces: dict[str, Pace] = {}
        self._hello_paces: dict[str, Pace] = {}
        self._slowed: set[str | None] = set()  # recorded once

    def open(self) -> None:
        """Bind the socket; needs a running event loop."""
        self.gate = Gate(self._bind, self.keys, self.doors, refused=self._turned_away)

    def add(self, name: RunId, hosted: Hosted) -> None:
        """Send frames with this name to this node."""
        self.table[name] = hosted
        self.admit()

    def admit(self) -> None:
        """Admit the connections of everybody who may send to any node here."""
        wanted = {user for hosted in self.table.values() for user in hosted.users}
        self.doors.members = {bytes.fromhex(user): user for user in wanted}

    def connected(self, hosted: Hosted) -> list[PartyId]:
        """Parties whose hello came on a connection that is still open."""
        return [p for p, each in hosted.router.bound.items() if self.gate.is_open(each)]

    async def forward(self, hosted: Hosted, frames: Frames, routed: Routed) -> None:
        """Send frames where the router decided."""
        for connection in self.gate.send(routed.connections, frames, routed.sender):
            for each in self.table.values():
                each.router.unreachable(connection)
        if routed.local:
            await hosted.link.put(frames)

    async def read(self) -> None:
        """Read frames for ever and pass each to its node."""
        while True:
            connection, user, frames = await self.gate.receive()
            if frames == PING:
                if self.doors.knows(user):  # a removed member reconnects and is then refused
                    self.gate.send((connection,), PONG)
                continue
            if user is not None and user.startswith(LOBBY):
                await self.guest(connection, bytes.fromhex(user.removeprefix(LOBBY)), frames)
                continue
            hosted: Hosted | None = None
            try:
                header = decode_header(frames)
                hosted = self.table.get(header.run)
                if hosted is None:
                    raise PeerError("frames of a run that is not here")
                check_version(header.version, hosted.node.identity.versions)
                party = hosted.party_of(user)
                if header.kind in GREETINGS:
                    self._forget_closed(hosted, party)
                routed = hosted.router.from_connection(connection, party, frames)
            except VersionError as other:
                spoken = SPOKEN if hosted is None else hosted.node.identity.versions
                self._refuse(hosted, frames, f"at the router: {other}")
                self.gate.send((connection,), notice(spoken))
                continue
            except PeerError as refused:
                self._refuse(hosted, frames, f"at the router: {refused}")
                continue
            if not self._may_speak(hosted, user, header):
                continue  # its sender has it and sends it again
            await self.forward(hosted, frames, routed)

    def _forget_closed(self, hosted: Hosted, party: PartyId | None) -> None:
        """Forget the connection that a party had before, if it is closed."""
        for name, connection in hosted.router.bound.items():
            if name == party and not self.gate.is_open(connection):
                hosted.router.unreachable(connection)

    def _may_speak(self, hosted: Hosted, user: str | None, header: Header) -> bool:
        """Whether a member may send its federation one more message now.

        A federation's journal lasts for years, and what is forwarded is in every member's journal.
        """
        if not isinstance(hosted, HostedFederation):
            return True
        now_s = asyncio.get_running_loop().time()
        pace = self._paces.setdefault(user or "", _pace(WORDS_BURST, WORDS_EVERY_S))
        allowed = pace.allows(now_s)
        if allowed and header.kind in GREETINGS and _is_new(hosted, header):
            pace = self._hello_paces.setdefault(user or "", _pace(HELLOS_BURST, HELLOS_EVERY_S))
            allowed = pace.allows(now_s)
        if not allowed and user not in self._slowed:
            self._slowed.add(user)
            self._refuse(hosted, (), f"at the router: {hosted.party_of(user)} speaks too often")
        return allowed

    async def guest(self, connection: bytes, key: bytes, frames: Frames) -> None:
        """Handle a guest's message; the broker of a single run has no lobby and ignores it."""

    def _turned_away(self, reason: str) -> None:
        """Record a connection that was not admitted; nothing it sent could be read."""
        self._refuse(None, (), f"at the gate: {reason}")

    def _refuse(self, hosted: Hosted | None, frames: Frames, reason: str) -> None:
        first = next(iter(self.table.values()), None)  # a federation, or the only run
        if (noted := hosted or first) is not None:
            noted.refuse(frames, reason)


def _pace(burst: float, every_s: float) -> Pace:
    return Pace(left=burst, burst=burst, every_s=every_s)


def _is_new(hosted: Hosted, header: Header) -> bool:
    """Whether the node has not received this envelope yet."""
    taken = hosted.node.mailbox.received_from(header.sender)
    return any(each.party == COORDINATOR and each.sequence > taken for each in header.to)


class Service(Switchboard):
    """The broker of one run; it ends with the run."""

    def __init__(self, settings: BrokerSettings, manifest: RunManifest, keys: Keys) -> None:
        super().__init__(settings.bind, keys)
        seats = seats_of(settings.members)
        expected = set(manifest.parties)
        if set(seats) != expected:
            raise SettingsError(
                f"members: the manifest needs exactly {', '.join(sorted(expected))}; "
                f"the broker admits {', '.join(sorted(seats))}"
            )
        self.hosted = HostedRun(
            manifest, seats, keys, runs=Path(settings.runs), forward=self.forward
        )
        self.node, self.router = self.hosted.node, self.hosted.router
        self.add(manifest.run, self.hosted)
        self.open()
        self.runner = self.hosted.runner(
            patience_s=manifest.deadline_s + 60.0, farewell_s=FAREWELL_S
        )

    async def run(self) -> str:
        """Run to the end and return the outcome."""
        reader = self.hosted.link.watch(asyncio.create_task(self.read()))
        for task in self.gate.tasks:
            self.hosted.link.watch(task)
        self.hosted.observe(self.node)
        try:
            outcome = await self.runner.run()
            self.hosted.finish()
            return outcome
        finally:
            reader.cancel()
            self.gate.close()


def seats_of(members: tuple[Member, ...]) -> dict[PartyId, Seat]:
    """Roles and keys by name."""
    return {
        member.party: Seat(
            "active" if member.role == "active" else "passive",
            bytes.fromhex(member.verify_key),
            bytes.fromhex(member.curve_key),
        )
        for member in members
    }


def build_service(settings: BrokerSettings) -> Service:
    """Read the manifest and the keys, open the journal, bind the socket."""
    manifest = load_settings(RunManifest, Path(settings.manifest))
    return Service(settings, manifest, load_keys(Path(settings.keys)))
