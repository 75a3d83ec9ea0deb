"""All parties of one entity resolution in memory, for tests.

It owns delivery and the record of who saw what. Each ordered pair of parties has a queue; a
schedule picks which queue delivers next, so that a test can try many arrival orders. All delivered
messages are kept: together they are the broker's view.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from hdpvfl_mq.psi import Block, Outgoing, Session, Terms, Workspace, open_session
from hdpvfl_mq.psi.ids import rules_digest
from hdpvfl_mq.psi.stream import derive
from hdpvfl_mq.psi.toss import commit, nonce_of, toss
from schemas.config import IdRules


@dataclass(frozen=True)
class Delivered:
    sender: str
    receiver: str
    message: Outgoing


class Federation:
    def __init__(
        self, method: str, sets: Sequence[Sequence[bytes]], *, seed: int = 1, **terms: Any
    ) -> None:
        self.names = [f"party{number}" for number in range(len(sets))]
        self.sets = dict(zip(self.names, sets, strict=True))
        self.root = derive(seed.to_bytes(32, "big"), "test")
        self.terms = Terms(
            method=method,
            active=self.names[0],
            passives=tuple(self.names[1:]),
            session_id=derive(self.root, "public"),
            commitments=tuple(commit(nonce_of(self.secret_of(n)), n) for n in self.names),
            profile_digest=rules_digest(terms.pop("profile", IdRules())),
            **terms,
        )
        self.works = {name: Workspace(ids, self.secret_of(name)) for name, ids in self.sets.items()}
        self.sessions: dict[str, Session] = {
            name: open_session(self.terms, name, work) for name, work in self.works.items()
        }
        self.delivered: list[Delivered] = []
        self.most_waiting: dict[tuple[str, str], int] = defaultdict(int)
        self._queues: dict[tuple[str, str], deque[Outgoing]] = defaultdict(deque)

    @property
    def public_seed(self) -> bytes:
        """What all nonces toss."""
        return toss(self.terms.session_id, [nonce_of(self.secret_of(name)) for name in self.names])

    def secret_of(self, name: str) -> bytes:
        return derive(self.root, "secret", name)

    def post(self, sender: str, outgoing: Sequence[Outgoing]) -> None:
        for message in outgoing:
            for receiver in message.to:
                queue = self._queues[sender, receiver]
                queue.append(message)
                self.most_waiting[sender, receiver] = max(
                    len(queue), self.most_waiting[sender, receiver]
                )

    def give(self, sender: str, receiver: str, message: Outgoing) -> Sequence[Outgoing]:
        """The message as if from this sender; if it is refused, nothing has happened."""
        session, work = self.sessions[receiver], self.works[receiver]
        self.sessions[receiver], outgoing = session.receive(work, received(sender, message))
        return outgoing

    def step(self, pair: tuple[str, str]) -> None:
        message = self._queues[pair].popleft()
        self.before(*pair, message)
        self.delivered.append(Delivered(*pair, message))
        self.post(pair[1], self.give(*pair, message))

    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        """What a test does just before a message is delivered."""

    def run(self, schedule: random.Random | None = None) -> Self:
        for name, session in self.sessions.items():
            self.post(name, session.start(self.works[name]))
        while pairs := [pair for pair, queue in self._queues.items() if queue]:
            self.step(schedule.choice(pairs) if schedule else pairs[0])
        return self

    def found(self) -> list[list[bytes]]:
        """The common ids that each party found, in its own order."""
        results = []
        for name, ids in self.sets.items():
            assert self.sessions[name].is_found, f"{name} has no result"
            positions = self.sessions[name].positions(self.works[name])
            assert (positions[1:] > positions[:-1]).all()
            results.append([ids[position] for position in positions])
        return results

    def expected(self) -> set[bytes]:
        return set.intersection(*map(set, self.sets.values()))

    def seen_by(self, name: str) -> list[bytes]:
        """Every payload a party received, opened with its own keys."""
        links = self.sessions[name].links
        seen = []
        for delivered in self.delivered:
            sender, message = delivered.sender, delivered.message
            if delivered.receiver == name and message.stage == "hello":
                seen.append(message.payload)
            elif delivered.receiver == name:
                place = (message.stage, message.index, message.last, message.meta)
                clear = links[sender].unseal(place, message.payload)
                assert clear is not None
                seen.append(clear)
        return seen

    def check(self) -> Self:
        """Every party found exactly the plain intersection and has nothing left to do."""
        expected = self.expected()
        for ids in self.found():
            assert len(ids) == len(expected)
            assert set(ids) == expected
        for session in self.sessions.values():
            done, total = session.progress
            assert session.is_finished
            assert done == total
        return self


def received(sender: str, message: Outgoing) -> Block:
    """What goes out of one session as it comes into another."""
    place = (message.stage, message.index, message.last)
    return Block(sender, *place, message.payload, message.meta)


def numbered(numbers: Sequence[int] | range, prefix: str = "id") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in numbers]


def shaped_sets(shape: str, parties: int, size: int) -> list[list[bytes]]:
    """Sets of the given kind, each party's in an order of its own."""
    step = max(1, size // (2 * parties))
    makers = {
        "overlapping": lambda k: range(k * step, k * step + size),
        "disjoint": lambda k: range(k * size, (k + 1) * size),
        "nested": lambda k: range(max(1, size >> k) if size else 0),
        "identical": lambda k: range(size),
    }
    sets = [numbered(makers[shape](k)) for k in range(parties)]
    for k, ids in enumerate(sets):
        random.Random(k).shuffle(ids)
    return sets
