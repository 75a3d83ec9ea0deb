"""A node under test: a scripted role, a ledger book and a store that log, peers with keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from nacl.signing import SigningKey

from hdpvfl_mq.errors import OperatorError, PeerError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.machine import Offence, OperatorRequest, Received, Reserve, Send, Started, TimerFired
from hdpvfl_mq.node.node import NO_LEDGER, Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.node.uncommitted import one_by_one
from hdpvfl_mq.wire.codec import decode_header
from schemas.messages import Pause, ScoreShare, Withdraw
from schemas.privacy import LedgerHead
from tests.puppet import Puppet
from tests.samples import DIGEST, example

KEYS = {p: SigningKey(bytes([n]) * 32) for n, p in enumerate(("shop", "bank", "coordinator"), 1)}
ROLES = {"shop": "passive", "bank": "active", "coordinator": "coordinator"}
HEAD = LedgerHead(sequence=1, digest=DIGEST)


class Echo:
    """A role that answers by its script: kind or timer -> effects; it counts what it was given."""

    name = "shop"

    def __init__(self, script=None, *, waits=()) -> None:
        """`waits`: kinds that must wait until the coordinator has sent a pause."""
        self.script, self.waits = script or {}, waits

    def initial(self):
        return ()

    def step(self, state, given):
        if isinstance(given, Offence) and "offence" not in self.script:
            raise PeerError("no move of this role")
        name = {
            Offence: lambda: "offence",
            Started: lambda: "started",
            Received: lambda: given.message.kind,
            TimerFired: lambda: f"timer:{given.timer}",
            OperatorRequest: lambda: given.request,
        }[type(given)]()
        effects = self.script.get(name, ())
        if effects == "refuse":
            raise PeerError(f"{name} is not wanted")
        return (*state, name), effects

    def progress(self, state):
        return {}

    def awaits(self, state):
        return ()

    def is_early(self, state, kind):
        return kind in self.waits and "pause" not in state


@dataclass
class Log:
    """What happened, in order, across ledger and journal."""

    events: list[str] = field(default_factory=list)
    fail: str = ""

    def note(self, event: str) -> None:
        if self.fail == event:
            raise OperatorError(f"the disk is full at {event}")
        self.events.append(event)


class Book:
    def __init__(self, log: Log) -> None:
        self.log, self.booked = log, set()

    def standing(self):
        return NO_LEDGER

    def reserve(self, reservation):
        self.log.note("reserve")

    def booking(self, releases):
        self.log.note("enter")
        return lambda: self._book(releases)

    def book_again(self, releases):
        self._book([each for each in releases if each.release_id not in self.booked])

    def charge_again(self, record):
        pass

    def _book(self, releases):
        if releases:
            self.log.note("book")
            self.booked |= {each.release_id for each in releases}

    def remember(self, party, head):
        self.log.note("remember")

    def check_restored(self, party, head):
        self.log.note("check")


class Store:
    """A journal that notes its commits."""

    def __init__(self, log: Log, journal: Journal) -> None:
        self.log, self.journal = log, journal
        self.records, self.refusals = journal.records, journal.refusals

    def commit(self, records):
        self.log.note("commit")
        self.journal.commit(records)


SHARE = Send(("bank",), example(ScoreShare))
REPORT = Send(("coordinator",), Withdraw(reason="operator"))
SCRIPT = {"pause": (Reserve(mu2_units=1, tau_units=1, exact=False), SHARE, REPORT)}


class Bench:
    """One node on a journal that outlives it."""

    def __init__(self, script=SCRIPT, *, book: bool = True) -> None:
        self.log = Log()
        self.journal = Journal(":memory:", run="test-run", party="shop")
        self.script, self.both = dict(script), one_by_one
        self.book = Book(self.log) if book else None
        self.coordinator = Puppet("coordinator", KEYS["coordinator"], "shop")
        self.bank = Puppet("bank", KEYS["bank"], "shop")
        self.node = self.restart()

    def restart(self) -> Node:
        contacts = {p: Contact(ROLES[p], KEYS[p].verify_key) for p in ("bank", "coordinator")}
        self.node = Node(
            Echo(self.script),
            Identity("shop", "passive", "test-run", KEYS["shop"]),
            contacts,
            journal=Store(self.log, self.journal),
            ledger=self.book,
            both=self.both,
        )
        self.node.open()
        return self.node

    def stored(self) -> list:
        return list(self.journal.records())

    def refused(self) -> list[str]:
        return [reason for _, reason in self.journal.refusals()]


def new_bench():
    bench = Bench()
    bench.node.start()
    bench.log.events.clear()
    return bench


def messages(turn) -> list[str]:
    return [decode_header(frames).kind for frames in turn.send]


PAUSE = Pause(waiting_for=("bank",))
