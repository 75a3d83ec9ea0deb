"""One member or the coordinator of a simulated federation is a liar with valid keys, from a seed.

The liar runs the honest role and tampers with its messages: it changes fields, withholds, replays,
reorders, sends receivers different messages and forges whatever its own key can sign. All other
members, the network and the router are honest.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.errors import HdpvflError, PeerError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.simulation import Faults, Simulation
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import Frames, decode_header, encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.config import RunManifest
from schemas.envelope import PROTOCOL_VERSION, Header
from schemas.ids import COORDINATOR
from schemas.messages import ROUTES
from schemas.methods import Method
from tests.federation import Federation, manifest
from tests.samples import KINDS, sample

DEADLINE_S = 60.0
PATIENCE_S = 45.0  # a party ends the run itself half a minute after its deadline
_MAX = 2**20
_COORDINATOR_KINDS = ("welcome", "round_plan", "pause", "resume", "run_closed", "align_start")


def small_manifest(method: Method | None = None) -> RunManifest:
    """Six rounds of descent, or another method; who waits gives up after a minute, virtual time."""
    times = {"deadline_s": DEADLINE_S, "absent_after_s": 5.0}
    rounds = {"epochs": 2, "batch_rows": 17} if method is None else {"method": method}
    return manifest(**rounds, wire=PROTOCOL_VERSION, **times)


@dataclass
class Habits:
    """How often a liar does what; drawn once, so that some seeds do one thing and others all."""

    change: float
    forge: float
    withhold: float
    silence: float
    replay: float
    split: float
    invent: float
    values: bool  # also lies about its own numbers, which no peer can know

    @classmethod
    def of(cls, dice: random.Random) -> Habits:
        def often() -> float:
            return dice.choice((0.0, 0.0, 0.02, 0.1, 0.3))

        names = ("change", "forge", "withhold", "silence", "replay", "split", "invent")
        return cls(**{name: often() for name in names}, values=dice.random() < 0.2)


class Liar(Node):
    """An honest node whose words are tampered with on their way out."""

    dice: random.Random
    habits: Habits
    said: list[Frames]
    lies: list[str]

    def start(self) -> Turn:
        return self._tampered(super().start())

    def turn(self, arrivals, events=()) -> Turn:
        try:
            return self._tampered(super().turn(arrivals, events))
        except HdpvflError:  # its own lies have confused it
            return Turn((), (), self.outcome)

    def acknowledgement(self) -> Frames | None:
        frames = super().acknowledgement()
        return None if frames is None or self._does("withhold") else frames

    def _does(self, habit: str) -> bool:
        if self.dice.random() >= getattr(self.habits, habit):
            return False
        self.lies.append(habit)
        return True

    def _tampered(self, turn: Turn) -> Turn:
        send: list[Frames] = []
        for frames in turn.send:
            send += self._told(frames)
        if self.said and self._does("replay"):
            send.insert(0, self.dice.choice(self.said))
        if self._does("invent"):
            send += self._invented()
        self.said += send
        return Turn(tuple(send), turn.arm, turn.outcome)

    def _told(self, frames: Frames) -> list[Frames]:
        header = decode_header(frames)
        if self._does("silence"):  # for ever: what is sent again is nothing, too
            for delivery in header.to:
                self.mailbox._outbox[delivery.party].waiting.pop(delivery.sequence, None)
            return []
        if self._does("withhold"):  # it comes again later, after what follows
            return []
        if len(header.to) > 1 and self._does("split"):
            parts = [self._signed(_only(header, d.party), frames[2], frames[3:]) for d in header.to]
            return [self._kept(self._changed(parts[0])), *map(self._kept, parts[1:])]
        if self._does("change"):
            frames = self._kept(self._changed(frames))
        if self._does("forge"):
            frames = self._kept(self._forged(frames))
        return [frames]

    def _kept(self, frames: Frames) -> Frames:
        """Stand by a lie: it is what is sent again."""
        if self.dice.random() < 0.7:
            for delivery in decode_header(frames).to:
                waiting = self.mailbox._outbox[delivery.party].waiting
                if delivery.sequence in waiting:
                    waiting[delivery.sequence] = (frames, 0)
        return frames

    def _changed(self, frames: Frames) -> Frames:
        body, arrays = unpack(frames[2], max_bytes=_MAX), list(frames[3:])
        if arrays and self.dice.random() < 0.3:
            if self.habits.values:
                data = np.frombuffer(arrays[0], dtype=np.uint8).copy()
                data[self.dice.randrange(len(data))] ^= 1
                arrays[0] = data.tobytes()
        else:
            body = with_change(body, self.dice, self.habits.values)
        return self._signed(decode_header(frames), pack(body), tuple(arrays))

    def _forged(self, frames: Frames) -> Frames:
        header = decode_header(frames)
        field_name = self.dice.choice(
            ("ack", "seen", "sequence", "epoch", "head", "parent", "size")
        )
        if field_name in ("ack", "seen", "sequence"):
            first, *others = header.to
            value = {
                "ack": max(0, first.ack + self.dice.choice((-1, 1, 1000))),
                "seen": self.dice.randbytes(32),
                "sequence": max(1, first.sequence + self.dice.choice((-1, 1, 300))),
            }[field_name]
            first = type(first)(**{**dict(first), field_name: value})
            changes = {"to": (first, *others)}
        else:
            value = {
                "epoch": max(1, header.epoch + self.dice.choice((-1, 1, 7))),
                "size": max(0, header.size + self.dice.choice((-1, 1))),
            }.get(field_name, self.dice.randbytes(32))
            changes = {field_name: value}
        return self._signed(Header(**{**dict(header), **changes}), frames[2], frames[3:])

    def _invented(self) -> list[Frames]:
        """A message of any kind this role may send, at any time, with the next number."""
        me, others = self.identity, [p for p in self.mailbox._outbox if p != self.identity.party]
        kinds = [
            kind for kind in KINDS if me.role in ROUTES[kind][0] and kind not in ("ack", "hello")
        ]
        kind = self.dice.choice(_COORDINATOR_KINDS if me.role == "coordinator" else kinds)
        may_receive = ROUTES[kind][1]
        heard_by = [p for p in others if self.mailbox._contacts[p].role in may_receive]
        if not heard_by:
            return []
        to = self.dice.choice(heard_by)
        body, arrays = encode_body(sample(kind))
        plain = with_change(unpack(body, max_bytes=_MAX), self.dice, values=True)
        header = decode_header(self.said[-1]) if self.said else None
        if header is None:
            return []
        number = self.mailbox._outbox[to].number()
        delivery = self.mailbox._delivery(to, number)
        fields = {**dict(header), "kind": kind, "to": (delivery,)}
        frames = self._signed(Header(**fields), pack(plain), arrays)
        self.mailbox._outbox[to].keep(number, frames, 0)
        return [frames]

    def _signed(self, header: Header, body: bytes, arrays) -> Frames:
        packed = encode_header(header)
        signature = sign(self.identity.signing_key, envelope_digest(packed, body, tuple(arrays)))
        return (packed, signature, body, *arrays)


def _only(header: Header, party: str) -> Header:
    return Header(**{**dict(header), "to": tuple(d for d in header.to if d.party == party)})


def with_change(value, dice: random.Random, values: bool):
    """The value with one leaf changed; numbers of a release only where `values` allows it."""
    if isinstance(value, dict):
        names = [n for n in value if n != "kind" and (values or n not in ("tensor", "exponent"))]
        if not names:
            return value
        name = dice.choice(names)
        return {**value, name: with_change(value[name], dice, values)}
    if isinstance(value, tuple) and value:
        place = dice.randrange(len(value))
        changed = with_change(value[place], dice, values)
        return dice.choice(((*value[:place], changed, *value[place + 1 :]), value[:-1]))
    return _another(value, dice)


def _another(value, dice: random.Random):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice((value + 1, max(0, value - 1), 0, 2**31, 2 * value))
    if isinstance(value, float):
        return dice.choice((value * 2, value / 2, 0.0, -value))
    if isinstance(value, bytes):
        return dice.randbytes(len(value))
    if isinstance(value, str):
        words = ("completed", "refused", "operator", "bank", "shop", "hello", "")
        return dice.choice((*words, value + "x"))
    return dice.choice((0, "x", value))


@dataclass
class ByzantineFederation(Federation):
    """A federation with one liar, all from one seed."""

    seed: int = 0
    dice: random.Random = field(init=False)
    liar: str = field(init=False)
    habits: Habits = field(init=False)
    lies: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dice = random.Random(f"liar {self.seed}")
        self.liar = self.dice.choice((COORDINATOR, *self.parties))
        self.habits = Habits.of(self.dice)

    @property
    def honest(self) -> list[str]:
        """Everybody but the liar."""
        return [name for name in (COORDINATOR, *self.parties) if name != self.liar]

    def node(self, party: str) -> Node:
        node = super().node(party)
        if party == self.liar:
            node.__class__ = Liar
            node.dice, node.habits, node.said, node.lies = self.dice, self.habits, [], self.lies
        return node

    def lived_through(self) -> Honestly:
        """Run until every honest node has ended or would have given up."""
        makers = {p: (lambda p=p: self.node(p)) for p in (COORDINATOR, *self.parties)}
        faults = Faults(delay_s=0.01)
        simulation = Honestly(makers, self.router, seed=self.seed, faults=faults)
        simulation.honest = self.honest
        simulation.live()
        return simulation


class Honestly(Simulation):
    """A simulation that ends when the honest have: by an outcome, or by their patience."""

    honest: list[str]
    stopped: dict[str, HdpvflError]

    def live(self) -> None:
        self.stopped = {}
        try:
            self.run()
        except HdpvflError:
            if self.now <= DEADLINE_S + PATIENCE_S and self._queue:
                raise

    def _is_over(self) -> bool:
        if self.now > DEADLINE_S + PATIENCE_S:
            return True
        return all(
            self._processes[p].node.outcome or p in self.stopped for p in self.honest
        ) and len(self._processes) > len(self.honest)

    def _deliver(self, party: str, life: int, frames: Frames) -> None:
        if party in self.stopped:
            return
        try:
            super()._deliver(party, life, frames)
        except PeerError as left:
            raise AssertionError(f"a peer's fault has ended {party}") from left
        except HdpvflError as stop:  # its process ends with this error's exit code
            self.stopped[party] = stop
            self._processes[party].alive = False
