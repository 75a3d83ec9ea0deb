"""The router: moves frames by their header and never opens a body.

It owns which connection speaks for which party; it knows no socket. The key of the connection
(CURVE) must belong to the sender named in the header, and a signed hello with an epoch that does
not fall binds the connection. What it cannot deliver it drops: the sender's stored bytes come
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nacl.signing import VerifyKey

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.codec import Frames, decode_header
from hdpvfl_mq.wire.signing import frames_digest, verify
from schemas.envelope import Header
from schemas.ids import COORDINATOR, PartyId, RunId
from schemas.messages import GREETINGS


@dataclass(frozen=True)
class Routed:
    """Where frames go: connections, whether to the coordinator in this process, and from whom."""

    connections: tuple[bytes, ...]
    local: bool
    sender: PartyId


class Router:
    """Bindings of one run's parties to their connections."""

    def __init__(
        self,
        run: RunId,
        members: Mapping[PartyId, VerifyKey],
        epochs: Mapping[PartyId, int] | None = None,
    ) -> None:
        """`epochs` is what the coordinator remembers: a restart of the broker forgets no epoch."""
        self._run = run
        self._members = members
        self._epochs = dict(epochs or {})
        self._bound: dict[PartyId, bytes] = {}

    @property
    def connected(self) -> tuple[PartyId, ...]:
        """Parties with a bound connection."""
        return tuple(sorted(self._bound))

    def from_connection(self, connection: bytes, user: str | None, frames: Frames) -> Routed:
        """Route what came from outside, or raise PeerError."""
        header = decode_header(frames)
        if header.run != self._run:
            raise PeerError("frames of another run")
        if user is None or user != header.sender or user not in self._members:
            raise PeerError(f"the key of {user or 'nobody'} may not speak for {header.sender}")
        if header.kind in GREETINGS:
            self._bind(header, connection, frames)
        if self._bound.get(header.sender) != connection:
            raise PeerError(f"{header.sender} has not said hello on this connection")
        return self._route(header)

    def from_coordinator(self, frames: Frames) -> Routed:
        """Route what the coordinator in this process sends."""
        return self._route(decode_header(frames))

    def unreachable(self, connection: bytes) -> None:
        """Forget a connection that no longer exists."""
        for party, bound in list(self._bound.items()):
            if bound == connection:
                del self._bound[party]

    def _bind(self, header: Header, connection: bytes, frames: Frames) -> None:
        key = self._members[header.sender]
        verify(key, frames_digest(frames), frames[1])
        if header.epoch < self._epochs.get(header.sender, 0):
            # An undelivered hello of an earlier life may come again on the newest connection.
            if self._bound.get(header.sender) != connection:
                raise PeerError(f"{header.sender} has a newer process than this hello")
            return
        self._epochs[header.sender] = header.epoch
        self._bound[header.sender] = connection

    def _route(self, header: Header) -> Routed:
        receivers = [delivery.party for delivery in header.to]
        bound = (self._bound.get(party) for party in receivers)
        return Routed(
            tuple(connection for connection in bound if connection is not None),
            COORDINATOR in receivers,
            header.sender,
        )
