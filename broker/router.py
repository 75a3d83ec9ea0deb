"""The router: forwards frames by their header and never decodes a body.

It owns which connection speaks for which party; it knows no socket. The CURVE key of the connection
must belong to the sender named in the header. A signed hello binds the connection if its epoch is
not below the last one, or if the party has no connection: one that has lost its journal counts from
1 again, and must be heard to be noticed. Frames that cannot be delivered are dropped: the sender
still has them stored and sends them again.
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
    """Where frames go: to which connections, whether to the local coordinator, and from whom."""

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
        """`epochs` come from the coordinator, so a restart of the broker forgets no epoch."""
        self._run = run
        self._members = members
        self._epochs = dict(epochs or {})
        self._bound: dict[PartyId, bytes] = {}
        # The connection of the same process's hello before that. Hellos of a connection that is cut
        # may be read after those of the next one, and nobody would tell the party.
        self._before: dict[PartyId, bytes] = {}

    @property
    def bound(self) -> dict[PartyId, bytes]:
        """Each party's connection of its last hello; the connection may be gone by now."""
        return dict(sorted(self._bound.items()))

    def from_connection(self, connection: bytes, user: str | None, frames: Frames) -> Routed:
        """Route frames from a connection; PeerError if they may not pass."""
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
        """Route frames of the coordinator in this process."""
        return self._route(decode_header(frames))

    def forget(self, party: PartyId) -> None:
        """Forget the connection and epoch of a party that was removed."""
        for known in (self._epochs, self._bound, self._before):
            known.pop(party, None)

    def unreachable(self, connection: bytes) -> None:
        """Forget a connection that no longer exists; the one before it speaks again, if any."""
        for party, bound in list(self._bound.items()):
            before = self._before.get(party)
            if connection in (bound, before):
                self._before.pop(party, None)
            if bound != connection:
                continue
            if before is None:
                del self._bound[party]
            else:
                self._bound[party] = before

    def _bind(self, header: Header, connection: bytes, frames: Frames) -> None:
        key = self._members[header.sender]
        verify(key, frames_digest(frames), frames[1])
        if header.epoch < self._epochs.get(header.sender, 0):
            # An undelivered hello of an earlier process may be sent again on the newest connection.
            if self._bound.setdefault(header.sender, connection) != connection:
                raise PeerError(f"{header.sender} has a newer process than this hello")
            return
        sender, bound = header.sender, self._bound.get(header.sender)
        if bound is None or header.epoch > self._epochs.get(sender, 0):
            self._before.pop(sender, None)
        elif bound != connection:
            self._before[sender] = bound
        self._epochs[sender], self._bound[sender] = header.epoch, connection

    def _route(self, header: Header) -> Routed:
        receivers = [delivery.party for delivery in header.to]
        bound = (self._bound.get(party) for party in receivers)
        return Routed(
            tuple(connection for connection in bound if connection is not None),
            COORDINATOR in receivers,
            header.sender,
        )
