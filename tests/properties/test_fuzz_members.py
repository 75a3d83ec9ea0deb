"""Signed frames of random content against the nodes of a standing federation, then a restart.

A federation's journal is replayed for years: whatever a member or the broker can put into it must
neither stop a process nor keep the next one from starting.
"""

from __future__ import annotations

import random

import pytest
from nacl.signing import SigningKey

from broker.registrar import Registrar
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import encode_body, encode_header
from hdpvfl_mq.wire.key_change import key_change
from hdpvfl_mq.wire.signing import envelope_digest, sign
from parties.membership import Membership
from parties.pairing import Self
from schemas.commands import (
    Admit,
    AnswerRun,
    ConfirmMember,
    EndRun,
    Invite,
    OperatorCommand,
    RemoveMember,
    SeatMember,
    StopRun,
)
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION, Delivery, Header
from schemas.federation import (
    KeyChanged,
    Pair,
    Roster,
    RosterEntry,
    RunAnswer,
    RunNews,
    RunProposal,
    RunStop,
)
from schemas.ids import COORDINATOR
from schemas.messages import ROUTES
from tests.federation import manifest
from tests.samples import KINDS, sample
from tests.simulation.byzantine import with_change

FRAMES, A_TURN = 1200, 12
KEYS = {
    name: SigningKey(bytes([seed]) * 32)
    for seed, name in enumerate((COORDINATOR, "bank", "shop", "telco"), start=1)
}
ROLES = {"bank": "active", "shop": "passive", "telco": "passive"}
_MAX = 2**20


def public(name: str) -> bytes:
    return bytes(KEYS[name].verify_key)


def registrar(journal: Journal) -> Node:
    identity = Identity(COORDINATOR, "coordinator", "spring", KEYS[COORDINATOR])
    return Node(Registrar(), identity, {}, journal=journal)


def member(journal: Journal) -> Node:
    me = Self("spring", "shop", public("shop"), bytes([9]) * 32, bytes([8]) * 32, "passive")
    identity = Identity("shop", "passive", "spring", KEYS["shop"])
    broker = Contact("coordinator", KEYS[COORDINATOR].verify_key)
    role = Membership(me, KEYS["shop"])
    return Node(role, identity, {COORDINATOR: broker}, journal=journal)


def plausible(dice: random.Random):
    """A message that fits what stands, so that some lead on."""
    name, run = dice.choice(list(ROLES)), f"run-{dice.randrange(4)}"
    keys = {"verify_key": public(name), "curve_key": dice.randbytes(32)}
    names = dice.sample(list(ROLES), dice.randrange(4))
    change = key_change(name, KEYS[name], SigningKey(dice.randbytes(32)), keys["curve_key"])
    some = (
        RunProposal(manifest=manifest(run=run)),
        RunAnswer(run=run, accepted=dice.random() < 0.7, reason="so be it"),
        RunStop(run=run, reason="operator"),
        RunNews(run=run, phase=dice.choice(("open", "refused")), waiting_for=(), reason=""),
        Pair(peer=name, stage=dice.randrange(1, 4), value=dice.randbytes(32), **keys),
        Roster(members=tuple(RosterEntry(party=n, role=ROLES[n]) for n in names)),
        KeyChanged(change=change),
    )
    return dice.choice(some)


def command(dice: random.Random) -> OperatorCommand:
    name, run = dice.choice(list(ROLES)), f"run-{dice.randrange(4)}"
    keys = {"verify_key": public(name), "curve_key": public(name)}
    given = dice.choice(
        (
            SeatMember(party=name, role=ROLES[name], **keys),
            AnswerRun(run=run, accepted=True, reason=""),
            StopRun(run=run, reason="operator"),
            EndRun(run=run, outcome="completed", reason=""),
            ConfirmMember(party=name),
            RemoveMember(party=name),
            Invite(party=name, role="passive", secret_digest=bytes(32), expires_s=5),
            Admit(party=name, secret=bytes(16), at_s=dice.randrange(9), **keys),
        )
    )
    return OperatorCommand(command=given)


class Thrower:
    """Peers' voices towards one node."""

    def __init__(self, node: Node, dice: random.Random) -> None:
        self.node, self.dice = node, dice
        role = node.identity.role
        self._kinds = [kind for kind in KINDS if role in ROUTES[kind][1]]

    def frames(self) -> tuple[bytes, ...]:
        dice, node = self.dice, self.node
        message = plausible(dice) if dice.random() < 0.6 else sample(dice.choice(self._kinds))
        body, arrays = encode_body(message)
        if dice.random() < 0.4:
            body = pack(with_change(unpack(body, max_bytes=_MAX), dice, values=True))
        sender = dice.choice(sorted(node.mailbox._contacts) or ["bank"])
        inbox = node.mailbox._inbox.get(sender)
        number = (inbox.received if inbox else 0) + 1 + dice.choice((0, 0, 0, 1, -1))
        to = Delivery(party=node.identity.party, sequence=max(0, number), ack=0, seen=NO_PARENT)
        header = encode_header(
            Header(
                version=PROTOCOL_VERSION,
                run="spring",
                sender=sender,
                epoch=dice.randrange(1, 4),
                kind=message.kind,
                to=(to,),
                parent=NO_PARENT,
                head=bytes(32),
                size=0,
                root=bytes(32),
            )
        )
        return (header, sign(KEYS[sender], envelope_digest(header, body, arrays)), body, *arrays)


@pytest.mark.parametrize("make", [registrar, member])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_peers_sign_neither_stops_a_node_nor_its_successor(make, seed):
    dice = random.Random(f"members {seed}")
    journal = Journal(":memory:", run="spring", party="any")
    node = make(journal)
    node.start()
    seats = [
        OperatorCommand(
            command=SeatMember(party=n, role=ROLES[n], verify_key=public(n), curve_key=public(n))
        )
        for n in ROLES
        if n != node.identity.party
    ]
    node.turn((), seats)
    thrower = Thrower(node, dice)
    for turn in range(FRAMES // A_TURN):
        events = (command(dice),) if dice.random() < 0.3 else ()
        node.turn([thrower.frames() for _ in range(A_TURN)], events)
        if turn % 50 == 49:
            again = make(journal)
            again.open()
            assert again.head == node.head
            assert again.state == node.state
            node = thrower.node = again
            node.start()
    assert node.steps > FRAMES // 20  # some of it was taken
