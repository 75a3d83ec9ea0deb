"""kill -9 of each role at every boundary of every turn, one run for each of them.

Points are found by counting: an undisturbed run says how often each process books, commits,
acknowledges and takes a turn; then every one of those moments kills once, in `make test` three of
each kind, spread over the run. The journal, the ledger and the node are wrapped, production code
knows of no fault.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Write
from hdpvfl_mq.runtime.simulation import Faults, Killed
from hdpvfl_mq.wire.codec import decode_body, decode_header
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.messages import Releasing
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, tables

SMALL = {"batch_rows": 22, "epochs": 2, "passive_parties": ("shop",), "wire": PROTOCOL_VERSION}
SLOW = Faults(delay_s=0.1)  # slow enough for acknowledgements to travel on their own
ROLES = ("bank", "shop", COORDINATOR)
POINTS = (
    "before the ledger",  # the step is made, nothing is on disk
    "after the ledger",  # reserved, the journal knows nothing
    "before the booking",  # entered, not yet durable; the journal may have it
    "after the booking",
    "before the journal",
    "after the journal",  # all is on disk, nothing was sent
    "before a turn",  # sent, and nothing done since
    "before an acknowledgement",
    "after an acknowledgement",  # it was made and never left
)


@dataclass
class Bomb:
    """Kills one party at the n-th time it passes one point."""

    party: str = ""
    point: str = ""
    number: int = 0
    passed: Counter = field(default_factory=Counter)

    def at(self, party: str, point: str) -> None:
        self.passed[party, point] += 1
        if (party, point) == (self.party, self.point) and self.number == self.passed[party, point]:
            raise Killed(party)


class Wired:
    """Anything whose methods are surrounded by points."""

    def __init__(self, inner: Any, bomb: Bomb, party: str, **points: str) -> None:
        self._inner, self._bomb, self._party, self._points = inner, bomb, party, points

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        place = self._points.get(name)
        if place is None:
            return method

        def surrounded(*arguments: Any, **named: Any) -> Any:
            self._bomb.at(self._party, f"before {place}")
            result = method(*arguments, **named)
            self._bomb.at(self._party, f"after {place}")
            return result

        return surrounded


@dataclass
class MinedFederation(Federation):
    bomb: Bomb = field(default_factory=Bomb)
    order: str = "ledger first"
    left: dict[str, set[bytes]] = field(default_factory=dict)  # release id -> payloads on the wire

    def node(self, party: str) -> Any:
        if party in self.ledgers and self.ledgers[party].in_transaction:
            self.ledgers[party].rollback()  # what a killed process had not committed is gone
        made, bomb = super().node(party), self.bomb
        book = made.ledger and Wired(made.ledger, bomb, party, reserve="the ledger")
        journal = Wired(self.journals[party], bomb, party, commit="the journal")
        node = Node(
            made.role,
            made.identity,
            self.contacts(party),
            journal=journal,
            ledger=book,
            both=partial(self.write_both, party),
        )
        points = {"turn": "a turn", "acknowledgement": "an acknowledgement"}
        return Wired(node, bomb, party, **points)

    def write_both(self, party: str, ledger: Write, journal: Write) -> None:
        """Two writes at once may end in either order, and a crash may come between them."""

        def booked() -> None:
            self.bomb.at(party, "before the booking")
            ledger()
            self.bomb.at(party, "after the booking")

        for write in (booked, journal) if self.order == "ledger first" else (journal, booked):
            write()

    def router(self) -> Any:
        router, seen = super().router(), self.seen

        class Watching:
            def from_connection(self, connection, user, frames):
                seen(frames)
                return router.from_connection(connection, user, frames)

            def from_coordinator(self, frames):
                return router.from_coordinator(frames)

            def unreachable(self, connection):
                router.unreachable(connection)

        return Watching()

    def seen(self, frames) -> None:
        message = decode_body(decode_header(frames), frames)
        if isinstance(message, Releasing):
            release = message.release
            self.left.setdefault(release.release_id, set()).add(release.tensor.data)


def run(bomb: Bomb, order: str) -> tuple[MinedFederation, dict[str, np.ndarray]]:
    federation = MinedFederation(manifest(**SMALL), tables(24), bomb=bomb, order=order)
    simulation = federation.simulate(faults=SLOW)
    assert set(federation.outcomes.values()) == {"completed"}
    return federation, federation.weights(simulation)


@cache
def calm() -> tuple[Counter, dict[str, np.ndarray], dict[str, tuple]]:
    federation, weights = run(Bomb(), "ledger first")
    return federation.bomb.passed, weights, federation.spent()


@pytest.mark.parametrize("kills", [3, pytest.param(10**9, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("point", "order"),
    [
        *((point, "ledger first") for point in POINTS),
        *((point, "journal first") for point in POINTS if "book" in point or "journal" in point),
    ],
)
@pytest.mark.parametrize("party", ROLES)
def test_a_kill_at_every_boundary_leaves_no_trace(party, point, order, kills):
    passed, weights, spent = calm()
    times = passed[party, point]
    if party == COORDINATOR and ("ledger" in point or "booking" in point):
        assert times == 0  # it has none
        return
    assert times > 0
    every = max(1, times // kills)
    for number in range(1 + POINTS.index(point) % every, times + 1, every):
        federation, found = run(Bomb(party, point, number), order)
        where = f"{party}, {point}, {order}, time {number}"
        for name, w in found.items():
            np.testing.assert_array_equal(w, weights[name], err_msg=where)
        assert federation.spent() == spent, where
        assert all(len(payloads) == 1 for payloads in federation.left.values()), where
        assert exit_code(audit(evidence_of(federation))) == 0, where
