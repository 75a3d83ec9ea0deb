"""A whole federation in one process, with seeded loss, copies, delays and crashes.

It owns virtual time and the faults; it knows no role. Nodes, router and pacing are those of
production: only sockets and clocks are replaced. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from hdpvfl_mq.errors import NetworkError, PeerError
from hdpvfl_mq.machine import awaited
from hdpvfl_mq.node.node import Event, Node
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.pacing import Pacing
from hdpvfl_mq.wire.codec import Frames, decode_header
from hdpvfl_mq.wire.sequence import EARLY_MAX
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import GREETINGS

RESTART_S = 0.3  # time until a killed process restarts
PATIENCE_S = 3600.0  # virtual time after which a run that has not ended is a failure


class Killed(Exception):  # noqa: N818 - a fault of the machine, not of the program
    """A process dies at this instruction; a store may raise it in the middle of a commit."""

    def __init__(self, party: PartyId) -> None:
        super().__init__(party)
        self.party = party


class Switch(Protocol):
    """The methods of the broker's router that the simulation uses."""

    def from_connection(self, connection: bytes, user: str | None, frames: Frames) -> Any: ...

    def from_coordinator(self, frames: Frames) -> Any: ...

    def unreachable(self, connection: bytes) -> None: ...


Operator = Callable[[Node], Event | None]


@dataclass(frozen=True)
class Faults:
    """Faults of the network and the machines."""

    loss: float = 0.0
    copies: float = 0.0
    delay_s: float = 0.001  # each hop takes up to this long, so frames can overtake each other
    crashes: int = 0  # processes killed at random moments
    crash_window_s: float = 0.2
    absences: tuple[tuple[PartyId, float, float], ...] = ()  # party, gone at, back after (s)


@dataclass
class _Process:
    node: Node
    pacing: Pacing = field(default_factory=Pacing)
    life: int = 1
    alive: bool = True


class Simulation:
    """Runs nodes to their end in virtual time."""

    def __init__(
        self,
        make_node: Mapping[PartyId, Callable[[], Node]],
        make_router: Callable[[], Switch],
        *,
        seed: int = 0,
        faults: Faults | None = None,
        operators: Mapping[PartyId, Operator] | None = None,
    ) -> None:
        """Each of `operators` sees its node after every turn, and may give it an input."""
        self._operators = operators or {}
        self._make_node, self._make_router = make_node, make_router
        self._faults = faults or Faults()
        self._dice = random.Random(seed)  # noqa: S311 - faults, not secrets
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.now = 0.0
        self.crashes = 0
        self._router = make_router()
        self._processes: dict[PartyId, _Process] = {}

    @property
    def nodes(self) -> dict[PartyId, Node]:
        """The current nodes."""
        return {party: process.node for party, process in self._processes.items()}

    def run(self) -> dict[PartyId, str]:
        """Run all nodes and return their outcomes; NetworkError if the run does not end."""
        for party in self._make_node:
            self._survive(partial(self._start, party))
        for _ in range(self._faults.crashes):
            moment = self._dice.uniform(0.0, self._faults.crash_window_s)
            self._at(moment, self._crash_any)
        for party, gone_at, back_after_s in self._faults.absences:
            self._at(gone_at, partial(self._crash, party, back_after_s))
        while self._queue and not self._is_over():
            self.now, _, action = heapq.heappop(self._queue)
            if self.now > PATIENCE_S:
                break
            self._survive(action)
        if not self._is_over():
            raise NetworkError(f"the simulated run has not ended after {self.now:.0f} s")
        return {party: node.outcome or "" for party, node in self.nodes.items()}

    def _is_over(self) -> bool:
        return all(p.alive and p.node.outcome for p in self._processes.values())

    def _survive(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Killed as killed:
            self._crash(killed.party, self._dice.uniform(0.0, RESTART_S))

    # -- processes ----------------------------------------------------------------------------

    def _start(self, party: PartyId) -> None:
        life = self._processes[party].life + 1 if party in self._processes else 1
        node = self._make_node[party]()
        node.open()
        process = self._processes[party] = _Process(node, life=life)
        if party == COORDINATOR and life > 1:
            self._router = self._make_router()
            for other in self._processes:
                self._at(self.now + self._faults.delay_s, partial(self._greet, other))
        self._finish_turn(process, party, node.start())
        self._greet(party)

    def _greet(self, party: PartyId) -> None:
        """Use a new connection: send hello first, then every unacknowledged frame."""
        process = self._processes[party]
        if not process.alive:
            return
        if process.node.mailbox.greeting is not None:
            self._send(party, process.node.mailbox.greeting)
        again = process.node.mailbox.unacknowledged(EARLY_MAX)
        for frames in (*again, *process.node.ask_again()):
            self._send(party, frames)

    def _crash_any(self) -> None:
        party = self._dice.choice(sorted(self._processes))
        self._crash(party, self._dice.uniform(0.0, RESTART_S))

    def _crash(self, party: PartyId, back_after_s: float) -> None:
        process = self._processes[party]
        if not process.alive:
            return
        self.crashes += 1
        process.alive = False
        self._at(self.now + back_after_s, partial(self._start, party))

    def _finish_turn(self, process: _Process, party: PartyId, turn: Turn) -> None:
        for frames in (*turn.send, *turn.parts):
            self._send(party, frames)
        process.pacing.after_turn(process.node.mailbox, turn, self.now)
        self._wake_later(process, party)
        operator = self._operators.get(party)
        if operator is not None and (event := operator(process.node)) is not None:
            life = process.life
            self._at(self.now, lambda: self._give(party, life, event))

    def _give(self, party: PartyId, life: int, event: Event) -> None:
        process = self._processes[party]
        if process.alive and process.life == life:
            self._finish_turn(process, party, process.node.turn((), (event,)))

    def _wake_later(self, process: _Process, party: PartyId) -> None:
        moment = process.pacing.next()
        if moment is not None:
            life = process.life
            self._at(max(moment, self.now), lambda: self._wake(party, life))

    def _wake(self, party: PartyId, life: int) -> None:
        process = self._processes[party]
        if not process.alive or process.life != life:
            return
        due = process.pacing.due(self.now)
        if due.greet and process.node.mailbox.greeting is not None:
            self._send(party, process.node.mailbox.greeting)
        again = process.pacing.again(process.node.mailbox, due, self.now)
        for frames in again:
            process.pacing.note_again(frames, self.now)
            self._send(party, frames)
        if due.ask:
            process.node.note_unserved()
            for frames in process.node.ask_again():
                self._send(party, frames)
        node = process.node
        asking = (*due.lacks, *(awaited(node.role, node.state) if due.is_quiet else ()))
        for silent in asking:
            node.mailbox.owe(silent)
        is_due = due.acknowledge or bool(asking)
        while is_due and (ack := process.node.acknowledgement()) is not None:
            self._send(party, ack)
        for party_with_gap in due.gaps:
            process.node.note_missing(party_with_gap)
        if due.fired or process.node.has_refusals:
            self._finish_turn(process, party, process.node.turn((), due.fired))
        elif due.resend or is_due or due.greet or due.ask or due.behind:
            self._wake_later(process, party)

    # -- the network --------------------------------------------------------------------------

    def _send(self, party: PartyId, frames: Frames) -> None:
        if party == COORDINATOR:
            self._forward(frames, self._router.from_coordinator(frames))
            return
        life = self._processes[party].life
        for _ in range(self._copies()):
            self._at(self._arrival(), lambda: self._at_broker(party, life, frames))

    def _at_broker(self, party: PartyId, life: int, frames: Frames) -> None:
        if not self._processes[COORDINATOR].alive:
            return
        if life > 1 and decode_header(frames).kind in GREETINGS:
            for earlier in range(1, life):  # the broker sees that these connections are closed
                self._router.unreachable(_connection(party, earlier))
        try:
            routed = self._router.from_connection(_connection(party, life), party, frames)
        except PeerError:
            return
        self._forward(frames, routed)

    def _forward(self, frames: Frames, routed: Any) -> None:
        if routed.local:
            self._deliver(COORDINATOR, self._processes[COORDINATOR].life, frames)
        for connection in routed.connections:
            party, life = connection.decode().split("#")
            for _ in range(self._copies()):
                self._at(self._arrival(), partial(self._deliver, party, int(life), frames))

    def _deliver(self, party: PartyId, life: int, frames: Frames) -> None:
        process = self._processes.get(party)
        if process is not None and process.alive and process.life == life:
            self._finish_turn(process, party, process.node.turn((frames,)))

    def _copies(self) -> int:
        if self._dice.random() < self._faults.loss:
            return 0
        return 2 if self._dice.random() < self._faults.copies else 1

    def _arrival(self) -> float:
        return self.now + self._dice.uniform(0.0, self._faults.delay_s)

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (moment, self._count, action))


def _connection(party: PartyId, life: int) -> bytes:
    return f"{party}#{life}".encode()
