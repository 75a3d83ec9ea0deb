"""The order of things in a process: ledger, journal, then speech; after an error, nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.errors import IntegrityError, OperatorError, PeerError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.machine import Arm, Finish, Fired, Ordered, Received, Reserve, Send, Started
from hdpvfl_mq.node import NO_LEDGER, Node
from hdpvfl_mq.ports import Contact, Identity
from hdpvfl_mq.post import COPIES_NOTED_MAX
from hdpvfl_mq.wire.codec import decode_body, decode_header
from schemas.messages import LedgerNotice, Pause, RoundReport, ScoreShare, Withdraw
from schemas.privacy import LedgerHead
from tests.puppet import Puppet
from tests.samples import DIGEST, release, sample

KEYS = {p: SigningKey(bytes([n]) * 32) for n, p in enumerate(("shop", "bank", "coordinator"), 1)}
ROLES = {"shop": "passive", "bank": "active", "coordinator": "coordinator"}
HEAD = LedgerHead(sequence=1, digest=DIGEST)


class Echo:
    """A role that answers by its script: kind or timer -> effects; it counts what it was given."""

    name = "shop"

    def __init__(self, script=None) -> None:
        self.script = script or {}

    def initial(self):
        return ()

    def step(self, state, given):
        name = {
            Started: lambda: "started",
            Received: lambda: given.message.kind,
            Fired: lambda: f"timer:{given.timer}",
            Ordered: lambda: given.order,
        }[type(given)]()
        effects = self.script.get(name, ())
        if effects == "refuse":
            raise PeerError(f"{name} is not wanted")
        return (*state, name), effects

    def progress(self, state):
        return {}


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
        self.log = log

    def standing(self):
        return NO_LEDGER

    def reserve(self, reservation):
        self.log.note("reserve")

    def book(self, releases):
        self.log.note("book")

    def remember(self, party, head):
        self.log.note("remember")

    def check_restored(self, party, head):
        self.log.note("check")


class Store:
    """A journal that notes its commits."""

    def __init__(self, log: Log, journal: Journal) -> None:
        self.log, self.journal = log, journal
        self.records, self.acks, self.refusals = journal.records, journal.acks, journal.refusals

    def commit(self, records, acks, refusals):
        self.log.note("commit")
        self.journal.commit(records, acks, refusals)


SHARE = Send(("bank",), ScoreShare(round=0, release=release()))
REPORT = Send(("coordinator",), Withdraw(reason="operator"))
SCRIPT = {"pause": (Reserve(1, 1, False), SHARE, REPORT)}


class Bench:
    """One node on a journal that outlives it."""

    def __init__(self, script=SCRIPT, *, book: bool = True) -> None:
        self.log = Log()
        self.journal = Journal(":memory:", run="test-run", party="shop")
        self.script, self.has_book = script, book
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
            book=Book(self.log) if self.has_book else None,
        )
        self.node.open()
        return self.node

    def stored(self) -> list:
        return list(self.journal.records())

    def refused(self) -> list[str]:
        return [reason for _, reason, _ in self.journal.refusals()]


@pytest.fixture
def bench():
    bench = Bench()
    bench.node.start()
    bench.log.events.clear()
    return bench


def messages(turn) -> list[str]:
    return [decode_header(frames).kind for frames in turn.send]


PAUSE = Pause(waiting_for=("bank",))


# -- ledger, journal, speech ----------------------------------------------------------------------


def test_the_ledger_is_booked_before_the_journal_is_written(bench):
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.log.events == ["reserve", "book", "commit"]
    assert messages(turn) == ["score_share", "withdraw"]


def test_a_turn_is_one_commit_however_much_arrives(bench):
    turn = bench.node.turn([bench.coordinator.say(PAUSE) for _ in range(5)])
    assert bench.log.events == ["reserve"] * 5 + ["book", "commit"]
    assert len(turn.send) == 10
    assert len(bench.stored()) == 6  # the start and five steps


@pytest.mark.parametrize("broken", ["reserve", "book", "commit"])
def test_an_error_of_ledger_or_journal_means_that_nothing_is_sent(bench, broken):
    bench.log.fail = broken
    before = bench.stored()
    with pytest.raises(OperatorError, match="disk is full"):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.stored() == before
    assert "commit" not in bench.log.events
    if broken != "commit":
        assert "book" not in bench.log.events


def test_after_an_error_the_restarted_process_makes_the_same_step_once(bench):
    frames = bench.coordinator.say(PAUSE)
    bench.log.fail = "commit"
    with pytest.raises(OperatorError):
        bench.node.turn([frames])
    bench.log.fail = ""
    node = bench.restart()
    node.start()
    turn = node.turn([frames])
    assert node.state == ("started", "started", "pause")
    assert messages(turn) == ["score_share", "withdraw"]


def test_a_release_without_a_ledger_is_never_sent():
    bench = Bench(book=False)
    bench.node.start()
    with pytest.raises(IntegrityError, match="without a ledger"):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    assert len(bench.stored()) == 1


def test_a_real_journal_error_stops_the_turn(bench):
    bench.journal._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(OperatorError, match="nothing was sent after the last commit"):
        bench.node.turn([bench.coordinator.say(PAUSE)])


# -- sending again --------------------------------------------------------------------------------


def test_unacknowledged_bytes_are_sent_again_as_they_are(bench):
    sent = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    assert set(sent) <= set(bench.node.post.unacknowledged())
    again = bench.restart().post.unacknowledged()
    assert set(sent) <= set(again)  # the very bytes, folded from the journal


def test_one_envelope_to_many_is_the_same_bytes_and_sent_again_once():
    both = Send(("bank", "coordinator"), LedgerNotice(head=HEAD, signature=bytes(64)))
    bench = Bench({"pause": (both,)})
    bench.node.start()
    (frames,) = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    assert [d.party for d in decode_header(frames).to] == ["bank", "coordinator"]
    assert list(bench.node.post.unacknowledged()).count(frames) == 1


def test_acknowledged_bytes_are_not_sent_again_even_after_a_restart(bench):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.node.post.has_unacknowledged
    bench.node.turn([bench.bank.say(sample("residual"), ack=1)])
    bench.node.turn([bench.coordinator.say(sample("welcome"), ack=1)])
    assert not bench.node.post.has_unacknowledged
    assert bench.restart().post.unacknowledged() == ()


def test_a_bare_acknowledgement_is_no_step(bench):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    steps = bench.node.steps
    ack = bench.bank.sealed("ack", b"\x81\xa4kind\xa3ack", sequence=0, ack=1)
    bench.node.turn([ack])
    assert bench.node.steps == steps
    assert bench.refused() == []
    assert all(
        d.party != "bank" for f in bench.node.post.unacknowledged() for d in decode_header(f).to
    )


def test_an_acknowledgement_of_more_than_was_sent_is_refused_and_recorded(bench):
    state = bench.node.state
    bench.node.turn([bench.bank.say(sample("residual"), ack=7)])
    assert bench.node.state is state
    assert bench.refused() == ["acknowledges 7 of 0 envelopes"]


def test_what_was_recorded_is_acknowledged_once_and_again_for_a_copy(bench):
    frames = bench.bank.say(sample("residual"))
    bench.node.turn([frames])
    assert bench.node.post.owes
    ack = bench.node.acknowledgement()
    (delivery,) = decode_header(ack).to
    assert (delivery.party, delivery.sequence, delivery.ack) == ("bank", 0, 1)
    assert decode_body(decode_header(ack), ack).kind == "ack"
    assert bench.node.acknowledgement() is None
    bench.node.turn([frames])  # the acknowledgement was lost, the peer sends again
    assert bench.node.post.owes


def test_an_answer_carries_the_acknowledgement(bench):
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert not bench.node.post.owes
    assert decode_header(turn.send[-1]).to[0].ack == 1


def test_nothing_is_acknowledged_before_it_is_recorded(bench):
    early = bench.bank.say(sample("residual"))
    later = bench.bank.say(sample("residual"))
    bench.node.turn([later])
    assert decode_header(bench.node.acknowledgement()).to[0].ack == 0
    bench.node.turn([early])
    assert decode_header(bench.node.acknowledgement()).to[0].ack == 2


# -- timers, epochs, outcome ----------------------------------------------------------------------


def test_timers_survive_a_restart_until_they_have_fired():
    bench = Bench({"pause": (Arm("watch", 5.0),), "timer:watch": (Arm("late", 7.0),)})
    assert bench.node.start().arm == ()
    assert bench.node.turn([bench.coordinator.say(PAUSE)]).arm == (Arm("watch", 5.0),)
    assert bench.restart().start().arm == (Arm("watch", 5.0),)
    assert bench.node.turn([], [Fired("watch")]).arm == (Arm("late", 7.0),)
    assert bench.restart().start().arm == (Arm("late", 7.0),)


def test_epochs_rise_with_every_start(bench):
    assert bench.node.epoch == 1
    for epoch in (2, 3):
        node = bench.restart()
        node.start()
        assert node.epoch == epoch


def test_an_outcome_is_remembered():
    bench = Bench({"pause": (Finish("completed"),)})
    bench.node.start()
    assert bench.node.turn([bench.coordinator.say(PAUSE)]).outcome == "completed"
    assert bench.restart().outcome == "completed"


# -- the journal is the memory --------------------------------------------------------------------


def test_folding_the_journal_gives_the_same_node(bench):
    bench.node.turn([bench.coordinator.say(PAUSE), bench.bank.say(sample("residual"))])
    before = bench.node
    after = bench.restart()
    assert (after.state, after.head, after.steps) == (before.state, before.head, before.steps)
    assert after.post.unacknowledged() == before.post.unacknowledged()


def test_another_behaviour_than_recorded_is_an_integrity_error(bench):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    bench.script = {"pause": (REPORT, SHARE)}
    with pytest.raises(IntegrityError):
        bench.restart()


def test_another_signing_key_than_recorded_is_an_integrity_error(bench, monkeypatch):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    monkeypatch.setitem(KEYS, "shop", SigningKey(bytes([9]) * 32))
    with pytest.raises(IntegrityError):
        bench.restart()


# -- the door -------------------------------------------------------------------------------------


def spoilt(frames, place):
    changed = bytearray(frames[place])
    changed[-1] ^= 1
    return (*frames[:place], bytes(changed), *frames[place + 1 :])


RESIDUAL = sample("residual")
DOOR = {
    "bad signature": (lambda b: spoilt(b.bank.say(RESIDUAL), 1), "signature does not verify"),
    "another body": (lambda b: spoilt(b.bank.say(RESIDUAL), 2), "signature does not verify"),
    "another array": (lambda b: spoilt(b.bank.say(RESIDUAL), 3), "signature does not verify"),
    "another's signature": (
        lambda b: Puppet("bank", KEYS["coordinator"], "shop").say(RESIDUAL),
        "signature does not verify",
    ),
    "unknown sender": (
        lambda b: Puppet("stranger", KEYS["bank"], "shop").say(RESIDUAL),
        "unknown run or sender",
    ),
    "another run": (
        lambda b: Puppet("bank", KEYS["bank"], "shop", run="other").say(RESIDUAL),
        "unknown run or sender",
    ),
    "another receiver": (
        lambda b: Puppet("bank", KEYS["bank"], "telco").say(RESIDUAL),
        "not addressed to this party",
    ),
    "wrong sender for its kind": (
        lambda b: b.bank.say(PAUSE),
        "a active party may not send pause here",
    ),
    "wrong receiver for its kind": (
        lambda b: b.bank.say(RoundReport(rounds_done=1, last=False)),
        "a active party may not send round_report here",
    ),
    "unknown kind": (
        lambda b: b.bank.sealed("gossip", b"\x80", sequence=1),
        "may not send gossip here",
    ),
    "no number": (
        lambda b: b.bank.say(RESIDUAL, sequence=0),
        "an envelope without a sequence number",
    ),
    "far ahead": (lambda b: b.bank.say(RESIDUAL, sequence=10_000), "too far ahead"),
    "two frames": (lambda b: b.bank.say(RESIDUAL)[:2], "2 frames"),
    "five frames": (lambda b: (*b.bank.say(RESIDUAL), b""), "5 frames"),
    "long body": (
        lambda b: b.bank.sealed("residual", bytes(65_537), sequence=1),
        "above its limit",
    ),
}


@pytest.mark.parametrize("name", DOOR)
def test_a_hostile_envelope_stops_at_the_door_and_is_recorded(bench, name):
    make, words = DOOR[name]
    frames, state, steps = make(bench), bench.node.state, bench.node.steps
    turn = bench.node.turn([frames])
    assert bench.node.state is state
    assert (bench.node.steps, turn.send, turn.arm) == (steps, (), ())
    assert not {"book", "reserve"} & set(bench.log.events)
    (reason,) = bench.refused()
    assert words in reason


def test_a_replayed_envelope_is_recorded_and_changes_nothing(bench):
    frames = bench.coordinator.say(PAUSE)
    bench.node.turn([frames])
    state, steps = bench.node.state, bench.node.steps
    bench.log.events.clear()
    assert bench.node.turn([frames, frames]).send == ()
    assert bench.node.state is state
    assert bench.node.steps == steps
    assert bench.log.events == ["commit"]
    assert bench.refused() == ["a copy of envelope 1 of coordinator"] * 2


def test_another_envelope_under_a_used_number_is_recorded_and_changes_nothing(bench):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    state = bench.node.state
    bench.node.turn([bench.coordinator.sealed("resume", b"\x80", sequence=1)])
    assert bench.node.state is state
    assert bench.refused() == ["a copy of envelope 1 of coordinator"]


def test_copies_do_not_fill_the_journal(bench):
    frames = bench.coordinator.say(PAUSE)
    bench.node.turn([frames])
    bench.node.turn([frames] * (COPIES_NOTED_MAX + 50))
    assert len(bench.refused()) == COPIES_NOTED_MAX


BODIES = {
    "not msgpack": b"\xc1",
    "not canonical": b"\xde\x00\x01\xa4kind\xa5pause",
    "duplicate keys": b"\x82\xa4kind\xa5pause\xa4kind\xa5pause",
    "extension type": b"\xd4\x05\x00",
    "deep nesting": b"\x91" * 2000 + b"\x00",
    "huge integer": b"\x82\xa4kind\xa5pause\xabwaiting_for\xcf" + b"\xff" * 8,
    "another kind": b"\x81\xa4kind\xa3ack",
    "a missing field": b"\x81\xa4kind\xa5pause",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_signed_body_that_breaks_the_schema_is_a_recorded_refusal(bench, name):
    """It took the sender's number, so it takes a step of the journal, but no state, no ledger."""
    bench.coordinator.sequence += 1
    state, steps = bench.node.state, bench.node.steps
    turn = bench.node.turn([bench.coordinator.sealed("pause", BODIES[name])])
    assert bench.node.state is state
    assert turn.send == ()
    assert bench.log.events == ["commit"]
    assert bench.node.steps == steps + 1
    assert b"refused" in bench.stored()[-1][1]
    assert messages(bench.node.turn([bench.coordinator.say(PAUSE)])) == ["score_share", "withdraw"]
    assert bench.restart().steps == steps + 2


def test_a_move_the_role_refuses_is_recorded_and_changes_nothing():
    bench = Bench({"pause": "refuse"})
    bench.node.start()
    state = bench.node.state
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.node.state is state
    assert turn.send == ()
    assert b"pause is not wanted" in bench.stored()[-1][1]
    assert bench.restart().state == state


def test_the_order_of_arrival_within_a_turn_is_not_information(bench):
    first, second = Bench({}), Bench({})
    for other, order in ((first, 1), (second, -1)):
        other.node.start()
        arrivals = [other.coordinator.say(PAUSE), other.bank.say(RESIDUAL)]
        other.node.turn(arrivals[::order])
    assert first.stored() == second.stored()


def test_a_second_process_on_the_journal_is_refused(tmp_path):
    path = tmp_path / "journal.db"
    first = Journal(path, run="test-run", party="shop")
    with pytest.raises(OperatorError, match="in use by another process"):
        Journal(path, run="test-run", party="shop")
    first.close()
    assert isinstance(sqlite3.connect(path), sqlite3.Connection)
