"""A member that withholds something: the run ends within seconds, or names whom it waits for.

A missing number in a stream and a peer over its limits end the run for everybody; a member that is
only silent in entity resolution is named at every party and at the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from hdpvfl_mq import machine
from hdpvfl_mq.machine import Send
from hdpvfl_mq.node import allowance
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.wire.codec import decode_header
from parties.awaited import awaited
from parties.phases import Aligning, Training
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.messages import AlignBlock, Waiting
from schemas.records import TimerFired
from schemas.tensor import Tensor
from tests.federation import Federation, LyingFederation, manifest, tables

SECONDS = 45.0  # of virtual time; the deadline is a day
BRIEF = {"epochs": 1, "batch_rows": 40, "rounds_ahead": 4, "wire": PROTOCOL_VERSION}


class Skips(Node):
    """Leaves out a number of its stream before the first message of one kind."""

    kind = "score_share"
    numbers = 1
    has_skipped = False

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and effect.message.kind == self.kind and not self.has_skipped:
            self.has_skipped = True
            for party in effect.to:
                for _ in range(self.numbers):
                    self.mailbox._outbox[party].number()
        return super()._perform(effect, parent)


class SkipsMany(Skips):
    """Leaves out more numbers than may be waited for."""

    numbers = 300


class SkipsBlocks(Skips):
    """Leaves out a number in entity resolution."""

    kind = "align_block"


class SkipsReports(Skips):
    """Leaves out a number in its stream to the coordinator."""

    kind = "aligned"


class Floods(Node):
    """Sends large blocks before entity resolution has begun."""

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and effect.message.kind == "run_accept":
            block = Tensor.of(np.zeros(2**17, dtype=np.uint8))
            for index in range(8):
                flood = AlignBlock(stage="query", index=index, last=False, meta=(), tensor=block)
                super()._perform(Send(("bank",), flood), parent)
        return super()._perform(effect, parent)


def outcome(liars, **changes):
    made = LyingFederation(manifest(**{**BRIEF, **changes}), tables(44), liars=liars)
    return made.simulate()


@pytest.mark.parametrize("liar", [Skips, SkipsMany, SkipsBlocks, SkipsReports])
def test_a_lasting_gap_ends_the_run_for_all_and_names_the_stream(liar):
    """Bug: the others waited for the missing envelope until the deadline, a day later."""
    simulation = outcome({"shop": liar})
    assert simulation.now < SECONDS
    for name in (COORDINATOR, "bank", "telco"):
        assert simulation.nodes[name].outcome == "mismatch"
        assert "shop" in simulation.nodes[name].state.reason, name
        assert "missing" in simulation.nodes[name].state.reason, name


def test_a_peer_over_its_byte_limit_ends_the_run_for_all(monkeypatch):
    """Bug: what it owed later was refused for ever, and the others waited for it."""
    monkeypatch.setattr(allowance, "IDLE_BYTES_MAX", 2**18)
    simulation = outcome({"shop": Floods})
    assert simulation.now < SECONDS
    for name in (COORDINATOR, "bank", "telco"):
        assert simulation.nodes[name].outcome == "mismatch"
        assert "shop sent it what the protocol" in simulation.nodes[name].state.reason


@pytest.mark.parametrize("seed", range(3))
def test_a_lossy_network_is_no_offence(seed):
    made = Federation(manifest(seed=seed, **BRIEF), tables(44))
    made.simulate(seed=seed, faults=Faults(loss=0.3, copies=0.2, delay_s=0.2))
    assert set(made.outcomes.values()) == {"completed"}


# -- silent in entity resolution ----------------------------------------------------------------


class Silent(Node):
    """Sends nothing of one stage of entity resolution, and nothing of other kinds of messages."""

    stage = ""
    kinds = frozenset({"waiting"})

    def _perform(self, effect, parent):
        recorded = super()._perform(effect, parent)
        message = effect.message if isinstance(effect, Send) else None
        is_stage = isinstance(message, AlignBlock) and message.stage == self.stage
        if message is not None and (is_stage or message.kind in self.kinds):
            self._uncommitted.send.pop()
            for party in effect.to:
                outbox = self.mailbox._outbox[party]
                outbox.waiting.pop(outbox.sent)
                outbox.sent -= 1
        return recorded


class NoHello(Silent):
    stage = "hello"


class NoChoice(Silent):
    stage = "choose"


class NoAnswer(Silent):
    stage = "answer"


class NoAnswerButWaits(NoAnswer):
    """It says that it waits for others itself."""

    kinds = frozenset()


class NoQuery(Silent):
    stage = "query"


@dataclass
class Watched(LyingFederation):
    """What every status says about whom it waits for, after the last turn."""

    shown: dict = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        for name in (*self.parties, COORDINATOR):
            self.operators[name] = self.look(name)

    def look(self, name):
        def seen(node):
            progress = node.role.progress(node.state)
            if not progress["outcome"]:
                self.shown[name] = progress["waiting_for"]

        return seen


@pytest.mark.parametrize(
    ("who", "how"),
    [("shop", NoHello), ("shop", NoChoice), ("telco", NoAnswer), ("bank", NoQuery)],
)
def test_all_know_who_keeps_them_waiting_in_entity_resolution(who, how):
    """Bug: the status named all three parties, or nobody."""
    brief = manifest(**BRIEF, absent_after_s=10.0, deadline_s=60.0)
    made = Watched(brief, tables(44), liars={who: how})
    simulation = made.simulate()
    honest = [name for name in ("bank", "shop", "telco") if name != who]
    assert {name: made.shown[name] for name in honest} == {name: [who] for name in honest}
    ended = simulation.nodes[COORDINATOR].state
    assert ended.outcome == "deadline"
    assert ended.reason == f"while aligning, waiting for {who}"


def test_a_party_asks_only_those_whose_message_it_needs_itself():
    """Bug: all parties of a crowd asked all for whom the run waited: the square of the parties."""
    brief = manifest(**BRIEF, absent_after_s=10.0, deadline_s=60.0)
    made = Watched(brief, tables(44), liars={"telco": NoAnswer})
    asked = {}

    def look(name):
        def seen_by(node):
            if isinstance(node.state, Aligning):
                made.shown[name] = node.role.progress(node.state)["waiting_for"]
                asked[name] = machine.awaited(node.role, node.state)

        return seen_by

    made.operators = {name: look(name) for name in ("bank", "shop")}
    made.simulate()
    assert made.shown == {"bank": ["telco"], "shop": ["telco"]}
    assert asked == {"bank": (COORDINATOR, "telco"), "shop": (COORDINATOR, "bank")}


def test_a_member_that_says_it_waits_itself_is_named_with_whom_it_accuses():
    """Nobody but the two can know which of them withholds; each names the other."""
    brief = manifest(**BRIEF, absent_after_s=10.0, deadline_s=60.0)
    made = Watched(brief, tables(44), liars={"telco": NoAnswerButWaits})
    made.simulate()
    assert made.shown["bank"] == ["telco"]
    assert made.shown["shop"] == ["bank", "telco"]


class NoShare(Silent):
    kinds = frozenset({"score_share"})


def test_a_party_knows_whom_it_waits_for_in_a_round():
    made = Watched(manifest(**BRIEF, deadline_s=60.0), tables(44), liars={"shop": NoShare})
    seen = {}

    def look(name):
        def seen_by(node):
            if isinstance(node.state, Training):
                seen[name] = awaited(node.role.own, node.state)

        return seen_by

    made.operators = {name: look(name) for name in ("bank", "telco")}
    made.simulate()
    assert seen == {"bank": ("shop",), "telco": ("bank",)}


# -- silent in the rounds and at the end ----------------------------------------------------------


class NoWaiting(Silent):
    """Sends one party nothing of one kind of message, and does not say that it waits."""

    kind = ""
    victim = "shop"

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and effect.message.kind == self.kind:
            others = tuple(party for party in effect.to if party != self.victim)
            effect = Send(others, effect.message) if others else Send(effect.to, NOTHING)
        return super()._perform(effect, parent)


NOTHING = Waiting(waiting_for=())  # which a Silent node does not send


class NoAgreed(NoWaiting):
    kind = "agreed"


class NoEnded(NoWaiting):
    kind = "ended"


class NoResidual(NoWaiting):
    kind = "residual"


class NoWitness(NoWaiting):
    kind = "ledger_witness"


class NoShareToAnybody(Silent):
    kinds = frozenset({"score_share", "waiting"})


STILL = {**BRIEF, "absent_after_s": 10.0, "deadline_s": 90.0}


@pytest.mark.parametrize("absence", ["wait", "nothing"])
@pytest.mark.parametrize(
    ("who", "how", "phase"),
    [
        ("bank", NoAgreed, "aligning"),
        ("bank", NoResidual, "training"),
        ("bank", NoEnded, "training"),
        ("bank", NoWitness, "training"),
        ("telco", NoWitness, "training"),
    ],
)
def test_who_withholds_is_named_and_not_who_lacks_it(who, how, phase, absence):
    """Bug: bank had reported its own part, so all were told that they wait for shop."""
    made = Watched(manifest(**STILL, absence=absence), tables(44), liars={who: how})
    ended = made.simulate().nodes[COORDINATOR].state
    assert ended.reason == f"while {phase}, waiting for {who}"
    assert all(made.shown[name] == [who] for name in ("shop", COORDINATOR)), made.shown


def test_all_know_whose_share_is_missing():
    """Bug: the coordinator named all three parties."""
    made = Watched(manifest(**STILL), tables(44), liars={"shop": NoShareToAnybody})
    ended = made.simulate().nodes[COORDINATOR].state
    assert ended.reason == "while training, waiting for shop"
    assert all(made.shown[name] == ["shop"] for name in ("bank", "telco", COORDINATOR))


def test_a_run_that_goes_on_waits_for_nobody():
    """Shop is away for a while: all are told, and hear that it is back."""
    made = Watched(manifest(**{**STILL, "epochs": 12, "absent_after_s": 2.0}), tables(44))
    named = []
    made.operators[COORDINATOR] = lambda node: named.append((*node.state.announced,))
    made.simulate(faults=Faults(delay_s=0.05, absences=(("shop", 1.2, 9.0),)))
    assert set(made.outcomes.values()) == {"completed"}
    assert ("shop",) in named
    assert named[-1] == ()


class NamesAStranger(Node):
    """Says that it waits for somebody who is not a party of the run."""

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and effect.message.kind == "waiting":
            effect = Send(effect.to, Waiting(waiting_for=("mallory",)))
        return super()._perform(effect, parent)


def test_nobody_is_told_to_wait_for_a_stranger():
    """Bug: the coordinator passed any name on to all parties."""
    made = Watched(manifest(**STILL), tables(44), liars={"telco": NamesAStranger, "bank": NoEnded})
    ended = made.simulate().nodes[COORDINATOR].state
    assert ended.reason == "while training, waiting for bank"


@dataclass
class Working(Federation):
    """The active party works while its time for shop runs out; the share comes with the timer."""

    has_worked: bool = False

    def node(self, party):
        node = super().node(party)
        turn_of = node.turn

        def turn(arrivals, events=()):
            kinds = [decode_header(frames).kind for frames in arrivals]
            senders = [decode_header(frames).sender for frames in arrivals]
            is_share = kinds == ["score_share"] and senders == ["shop"]
            if party == "bank" and is_share and not self.has_worked:
                self.has_worked = True
                node._note_withheld("shop", "an envelope is missing")
                (timer,) = turn_of(()).arm
                events = (TimerFired(timer=timer.timer),)
            return turn_of(arrivals, events)

        node.turn = turn
        return node


def test_a_peer_whose_message_is_here_when_its_time_is_up_is_not_named():
    """Bug: an active party that worked for six seconds named a peer that had sent its share."""
    made = Working(manifest(**BRIEF), tables(44))
    made.simulate()
    assert made.has_worked
    assert set(made.outcomes.values()) == {"completed"}
