"""Send frames with valid signatures and random content to nodes in every phase, from a seed.

A party's or the coordinator's node is folded from the first records of an honest run, so it is in
the middle of that run, of descent or of the private model, in the oldest or the newest version of
the protocol; then members with valid keys send what no honest member would, until the run
is over for this node. `python -m tests.properties.fuzz_frames N` sends N frames (make fuzz: 20
million).

Every frame is signed by the member it names, so every signature is valid unless the fuzz changed
that name. In make fuzz, nine blocks of ten have a hash keyed by the member's key in the place of
Ed25519, which takes half of the time and sees nothing but digest and key.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.node import mailbox
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import Frames, decode_header, encode_body
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.messages import LAST_WORDS, ROUTES
from schemas.methods import PrivateModel
from schemas.records import EnvelopeReceived
from tests.federation import Federation, manifest, tables
from tests.samples import KINDS, sample
from tests.simulation.byzantine import with_change

FRAMES_A_NODE = 2500  # before the next one is made
FRAMES_A_TURN = 25
ENDING = ("Leaving", "Closed")  # phases in which few moves are left
FRAMES_AFTER_THE_END = 100
LAST_WORDS_KEPT = 0.01
BLOCK = 200_000  # frames from one seed
_MAX = 2**20
SIGN = [sign]  # how a thrower signs


def _seal(key: bytes, digest: bytes) -> bytes:
    return hashlib.blake2b(digest, key=key, digest_size=64).digest()


def _sign_by_hash(key: SigningKey, digest: bytes) -> bytes:
    return _seal(bytes(key.verify_key), digest)


def _verify_by_hash(key: VerifyKey, digest: bytes, signature: bytes) -> None:
    if signature != _seal(bytes(key), digest):
        raise PeerError("signature does not verify")


@contextmanager
def hashes_for_signatures() -> Iterator[None]:
    """Let mailboxes and throwers sign and verify by keyed hashes."""
    signed = (mailbox.sign, mailbox.verify, SIGN[0])
    mailbox.sign, mailbox.verify, SIGN[0] = _sign_by_hash, _verify_by_hash, _sign_by_hash
    try:
        yield
    finally:
        mailbox.sign, mailbox.verify, SIGN[0] = signed


class FirstRecords:
    """A store that holds a run's first records and forgets what is added."""

    def __init__(self, records) -> None:
        self._records = records

    def records(self, first: int = 0):
        return self._records[first:]

    def commit(self, records) -> None:
        """What a node adds is not needed again."""


class Unbooked:
    """The ledger of the calm run, which has releases of the same names with other payloads."""

    def __init__(self, ledger) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str):
        return getattr(self._ledger, name)

    def booking(self, releases):
        return lambda: None

    def book_again(self, releases) -> None:
        """They are booked."""


# The runs that nodes are taken from; a seed selects one.
RUNS: tuple[dict, ...] = (
    {"epochs": 1, "batch_rows": 25},
    {"method": PrivateModel(), "wire": PROTOCOL_VERSION},
    {"epochs": 1, "batch_rows": 25, "wire": PROTOCOL_VERSION},
)


@cache
def calm(run: int) -> Federation:
    federation = Federation(manifest(**RUNS[run]), tables(rows=50))
    federation.simulate()
    return federation


@cache
def _records(run: int, party: str) -> list[tuple[int, bytes, bytes]]:
    return list(calm(run).journals[party].records())


@cache
def templates(run: int) -> tuple[tuple[str, dict, tuple[bytes, ...]], ...]:
    """Every kind of message, and everything that was said in the calm run."""
    found = []
    for kind in KINDS:
        body, arrays = encode_body(sample(kind))
        found.append((kind, unpack(body, max_bytes=_MAX), arrays))
    for party in calm(run).journals:
        for index, stored, _ in _records(run, party):
            given = chain.decode(stored, index).input
            if isinstance(given, EnvelopeReceived):
                header = decode_header(given.frames)
                body = unpack(given.frames[2], max_bytes=_MAX)
                found.append((header.kind, body, given.frames[3:]))
    return tuple(found)


class Thrower:
    """Members' voices towards one node."""

    def __init__(self, node: Node, dice: random.Random, run: int) -> None:
        self.node, self._dice, self._run = node, dice, run
        self._next: Counter[str] = Counter(
            {p: box.received for p, box in node.mailbox._inbox.items()}
        )
        self._template = self._some_header()
        role = node.identity.role
        self._mine = [each for each in templates(run) if role in ROUTES[each[0]][1]]

    def _some_header(self) -> dict:
        frames = next(_received(self._run, self.node.identity.party))
        return unpack(frames[0], max_bytes=_MAX)

    def frames(self) -> Frames:
        dice = self._dice
        is_routed = dice.random() < 0.97
        kind, body, arrays = dice.choice(self._mine if is_routed else templates(self._run))
        while kind in LAST_WORDS and dice.random() > LAST_WORDS_KEPT:  # few moves are left after it
            kind, body, arrays = dice.choice(self._mine)
        contacts = self.node.mailbox._contacts
        may_send = [p for p, contact in contacts.items() if contact.role in ROUTES[kind][0]]
        sender = dice.choice(may_send or sorted(contacts))
        self._next[sender] += is_routed
        header = self._header(kind, sender)
        for _ in range(dice.choice((0, 1, 1, 1, 2))):
            body = with_change(body, dice, values=True)
        if arrays and dice.random() < 0.3:
            arrays = (dice.choice((b"", arrays[0][:-1], dice.randbytes(len(arrays[0])))),)
        packed = pack(body)
        if dice.random() < 0.1:
            packed = _spoilt(packed, dice)
        head = pack(header)
        if dice.random() < 0.1:
            head = dice.choice((pack(with_change(header, dice, values=True)), _spoilt(head, dice)))
            self._next[sender] -= 1  # it is most likely refused, and the next one stands there
        signature = SIGN[0](calm(self._run).keys[sender], envelope_digest(head, packed, arrays))
        return (head, signature, packed, *arrays)

    def _header(self, kind: str, sender: str) -> dict:
        party, number = self.node.identity.party, self._next[sender]
        outbox = self.node.mailbox._outbox[sender]
        # What it must have seen, or nothing, which is refused once it has answered.
        ack = outbox.confirmed if self._dice.random() < 0.95 else 0
        seen = outbox.digests.get(ack, NO_PARENT)
        delivery = {"party": party, "sequence": number, "ack": ack, "seen": seen}
        epoch = max(1, self.node.mailbox._epochs.get(sender, 1))
        stated = {"sender": sender, "kind": kind, "to": (delivery,), "epoch": epoch}
        return {**self._template, **stated}

    def settle(self) -> None:
        """Go on from what the node has taken, so that the next frames are in order."""
        for party, box in self.node.mailbox._inbox.items():
            self._next[party] = box.received
            box.early.clear()
            box.early_bytes = box.busy.early_bytes = 0


def _received(run: int, party: str) -> Iterator[Frames]:
    for index, stored, _ in _records(run, party):
        given = chain.decode(stored, index).input
        if isinstance(given, EnvelopeReceived):
            yield given.frames


def _spoilt(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def prepared(dice: random.Random, run: int) -> Node:
    """A node somewhere in a calm run."""
    party = dice.choice((COORDINATOR, *calm(run).parties))
    records = _records(run, party)
    node = calm(run).node(party)
    node._journal = FirstRecords(records[: dice.randrange(1, len(records))])
    node.ledger = None if node.ledger is None else Unbooked(node.ledger)
    node.open()
    return node


def throw(count: int, seed: int, *, hashes: bool = False) -> Counter[str]:
    """Throw frames; returns what became of them. Anything a node raises is a defect."""
    dice, run = random.Random(f"fuzz {seed}"), seed % len(RUNS)
    counted: Counter[str] = Counter()
    while (left := count - counted["thrown"]) > 0:
        node = prepared(dice, run)
        steps = node.steps
        with hashes_for_signatures() if hashes else nullcontext():
            thrower = Thrower(node, dice, run)
            counted.update(_throw_at(thrower, min(left, FRAMES_A_NODE)))
        counted["taken"] += node.steps - steps
        counted["nodes"] += 1
        counted[node.identity.role] += 1
    return counted


def _throw_at(thrower: Thrower, count: int) -> Counter[str]:
    node, thrown, ending = thrower.node, 0, 0
    while thrown < count and ending < FRAMES_AFTER_THE_END:
        batch = [thrower.frames() for _ in range(min(FRAMES_A_TURN, count - thrown))]
        ending += len(batch) if type(node.state).__name__ in ENDING else 0
        try:
            node.turn(batch)
        except PeerError as left:
            raise AssertionError(f"{node.identity.party}: a refusal got out: {left}") from left
        thrown += len(batch)
        thrower.settle()
    return Counter(thrown=thrown, ending=ending)


def _block(seed: int) -> tuple[bool, str]:
    try:
        return True, f"{seed} {dict(throw(BLOCK, seed, hashes=seed % 10 > 0))}"
    except Exception:  # noqa: BLE001 - a defect, which must not hide those of other seeds
        return False, f"{seed} BROKE\n{traceback.format_exc()}"


def main(options: argparse.Namespace) -> int:
    """`make fuzz`: each block has its own seed; to go on later, name the first one not printed."""
    count = int(options.frames)
    if count < BLOCK:
        print(options.first, dict(throw(count, options.first)))
        return 0
    for run in range(len(RUNS)):
        calm(run)  # once, before the processes fork
    seeds = range(options.first, options.first + -(-count // BLOCK))
    broke = 0
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for held, line in pool.imap(_block, seeds):
            print(line, flush=True)
            broke += not held
    return 1 if broke else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frames", type=float, help="how many; rounded up to blocks of 200,000")
    parser.add_argument("--first", type=int, default=1000, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    sys.exit(main(parser.parse_args()))
