"""`step` is pure: the same input into the same state, twice, gives the same, and changes nothing.

Every input of whole simulated runs goes twice into the state it met. What a party remembers outside
its state (its workspace and its memo) is there in the first step and empty in the second, so it can
only be a memo.
"""

from __future__ import annotations

import hashlib
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from nacl.signing import SigningKey

from broker import registrar
from broker.registrar import Registrar
from hdpvfl_mq.app.refold import RecordedStore
from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import (
    Finish,
    Input,
    OperatorCommand,
    OperatorRequest,
    Received,
    Send,
    Started,
    TimerFired,
)
from hdpvfl_mq.node.node import NO_LEDGER, Node
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.wire.codec import decode_header
from hdpvfl_mq.wire.key_change import key_change
from parties import membership
from parties.membership import Membership
from parties.phases import Training
from parties.process.mapped_arrays import MappedArrays
from parties.unable import Unable
from schemas.commands import (
    Admit,
    AnswerRun,
    CannotOpen,
    CloseRun,
    ConfirmMember,
    EndRun,
    Invite,
    ProposeRun,
    RemoveMember,
    ReplaceKeys,
    SeatMember,
    StopRun,
)
from schemas.config import AlignmentSpec, IdRules
from schemas.envelope import PROTOCOL_VERSION
from schemas.federation import MemberHello
from schemas.ids import COORDINATOR
from schemas.messages import RunClosed
from schemas.privacy import Budget
from schemas.records import Acknowledged, EnvelopeReceived, StepRecord, TurnedAway, Withheld
from tests.deep import deep_digest
from tests.federation import Federation, LyingFederation, manifest, tables
from tests.golden.recorded import JOURNALS, federation, read
from tests.simulation import predicting, scoring
from tests.simulation.test_waiting import BRIEF, Skips
from tests.twice import Twice, outcomes
from tests.unit.parties.test_roster import Member

pytestmark = pytest.mark.seconds


def test_arrays_in_memory_or_in_a_file_have_the_digest_of_their_bytes() -> None:
    """Bug: a step could not be made twice if its message had come in parts."""
    assert deep_digest(memoryview(b"abc")) == deep_digest(memoryview(bytearray(b"abc")))
    assert deep_digest(memoryview(b"abc")) != deep_digest(memoryview(b"abd"))


@pytest.mark.parametrize("method", ["ecdh", "oprf"])
def test_every_input_of_a_run_is_repeatable_and_changes_no_state(
    method: Literal["ecdh", "oprf"], tmp_path: Path
) -> None:
    alignment = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=10, method=method)
    newest = manifest(alignment=alignment, epochs=1, wire=PROTOCOL_VERSION)
    twice = Twice()
    federation = twice.federation(Federation(newest, tables(44)), MappedArrays(DiskSpace(tmp_path)))
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    assert {"Joining", "Accepted", "Aligning", "Aligned", "Training"} <= twice.phases
    assert {"align_block", "score_share", "residual", "ledger"} <= twice.moves


def test_every_input_of_a_prediction_is_repeatable() -> None:
    _, models = predicting.trained(epochs=1)
    twice = Twice()
    federation = twice.federation(predicting.prediction(models, rows=44))
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    assert {"Training", "score_share"} <= twice.phases | twice.moves


def test_every_input_of_a_scoring_session_is_repeatable() -> None:
    """With noise, so that people are charged and the ledger's answer is stepped as well."""
    _, models = scoring.trained()
    twice = Twice()
    budget = Budget(epsilon=1.0, delta=1e-5)
    session = scoring.session(models, rows=44, scores="noised", budget=budget)
    session.batch = 40
    twice.federation(session.federation)
    session.run()
    assert session.answers
    assert {"charged", "command:ask_scores", "command:end_scoring"} <= twice.moves


def test_timers_restarts_and_a_withdrawal_are_repeatable() -> None:
    """Shop is away until the others pause; telco's operator withdraws after it is back."""
    settings = {"epochs": 4, "absent_after_s": 2.0, "rounds_ahead": 4}
    twice = Twice()
    federation = twice.federation(Federation(manifest(**settings), tables(44)))

    def operator(node: Node) -> OperatorRequest | None:
        is_back = isinstance(node.state, Training) and "resume" in twice.moves
        return OperatorRequest(request="withdraw") if is_back else None

    federation.operators["telco"] = operator
    federation.simulate(faults=Faults(delay_s=0.05, absences=(("shop", 0.8, 6.0),)))
    assert set(federation.outcomes.values()) == {"withdrawn"}
    assert {"pause", "resume", "withdraw", "operator:withdraw", "timer:watch"} <= twice.moves


def test_the_steps_after_an_offence_are_repeatable() -> None:
    twice = Twice()
    liars: dict[str, type[Node]] = {"shop": Skips}
    twice.federation(LyingFederation(manifest(**BRIEF), tables(44), liars=liars)).simulate()
    assert "offence" in twice.moves


class Standing:
    """A registrar and its members; every step of each is made twice."""

    def __init__(self, twice: Twice, *names: str) -> None:
        self.twice, self.registrar = twice, twice.role(Registrar())
        self.state = self.registrar.initial()
        self.members: dict[str, Member] = {}
        start = Started(epoch=1, standing=NO_LEDGER)
        seeds = enumerate(names, start=1)
        seats = [_seat(self.member(name, 10 * seed)) for seed, name in seeds]
        self.told(start, *(OperatorCommand(command=seat) for seat in seats))
        for member in self.members.values():
            member.take(start)
        self.told(*(Received(name, MemberHello(epoch=1)) for name in names))

    def member(self, name: str, seed: int) -> Member:
        member = self.members[name] = Member(name, seed)
        self.twice.role(member.role)
        return member

    def told(self, *inputs: Input) -> None:
        """Give the registrar these inputs, and pass everything on that follows from them."""
        waiting = deque(inputs)
        while waiting:
            self.state, effects = self.registrar.step(self.state, waiting.popleft())
            for sent in (effect for effect in effects if isinstance(effect, Send)):
                for party in sent.to:
                    with suppress(PeerError):  # a node refuses the message and goes on
                        self.members[party].hear(sent.message)
            for member in self.members.values():
                waiting += (Received(member.name, message) for message in member.sent)
                member.sent.clear()

    def broker(self, *commands: Any) -> None:
        self.told(*(OperatorCommand(command=command) for command in commands))

    def operator(self, party: str, command: Any) -> None:
        self.members[party].command(command)
        said = [Received(party, message) for message in self.members[party].sent]
        self.members[party].sent.clear()
        self.told(*said)

    def proposed(self, run: str, *, accepted: bool = False) -> None:
        self.operator("bank", ProposeRun(manifest=manifest(run=run, passive_parties=("shop",))))
        if accepted:
            self.operator("shop", AnswerRun(run=run, accepted=True, reason=""))


def test_every_move_of_a_federations_roles_is_repeatable() -> None:
    """Members meet, agree on runs and end them, replace keys; one joins and one is removed."""
    twice = Twice()
    world = Standing(twice, "bank", "shop")
    world.operator("bank", ConfirmMember(party="shop"))
    world.operator("shop", ConfirmMember(party="bank"))
    over = {"outcome": "completed", "reason": ""}
    world.proposed("one", accepted=True)
    world.broker(CloseRun(run="one", **over), EndRun(run="one", **over))
    world.operator("bank", EndRun(run="one", **over))
    world.proposed("two")
    world.operator("shop", StopRun(run="two", reason="operator"))
    world.proposed("three")
    world.told(TimerFired(timer="proposal:three"))
    world.proposed("four")
    world.broker(StopRun(run="four", reason="operator"))
    world.proposed("five", accepted=True)
    world.broker(CannotOpen(run="five", reason="no port"))
    _replace_keys(world, "shop")
    _join(world, "telco")
    world.operator("bank", _seat(Member("mallory", 40)))
    world.operator("bank", RemoveMember(party="shop"))
    world.broker(RemoveMember(party="shop"))
    tables = {Registrar: registrar.MOVES, Membership: membership.MOVES}
    rows = {(role, name) for role, moves in tables.items() for _, name in moves}
    assert twice.taken == rows


def _replace_keys(world: Standing, party: str) -> None:
    member, new = world.members[party], SigningKey(bytes([77]) * 32)
    member.role.learn({bytes(new.verify_key): new})
    change = key_change(party, member.key, new, bytes([79]) * 32)
    world.operator(party, ReplaceKeys(change=change))


def _join(world: Standing, party: str) -> None:
    member, secret = world.member(party, 30), bytes(16)
    keys = {"verify_key": member.first.verify_key, "curve_key": member.first.curve_key}
    digest = hashlib.sha256(secret).digest()
    world.broker(Invite(party=party, role="passive", secret_digest=digest, expires_s=10))
    world.broker(Admit(party=party, secret=secret, at_s=1, **keys))


def _seat(member: Member) -> SeatMember:
    own = member.first
    keys = {"verify_key": own.verify_key, "curve_key": own.curve_key}
    return SeatMember(party=member.name, role=own.role, **keys)


def test_every_step_of_a_party_that_cannot_take_part_is_repeatable() -> None:
    role = Twice().role(Unable("shop", ("bank", "telco")))
    closed = Received(COORDINATOR, RunClosed(outcome="withdrawn", reason=""))
    for last in (closed, TimerFired(timer="closing")):
        state, _ = role.step(role.initial(), Started(epoch=1, standing=NO_LEDGER))
        state, effects = role.step(state, last)
        assert (type(state).__name__, effects) == ("Told", (Finish(outcome="withdrawn"),))
        assert role.step(state, last) == (state, ())


@pytest.mark.parametrize(("name", "party"), JOURNALS)
def test_every_input_of_a_golden_journal_is_repeatable(name: str, party: str) -> None:
    """Recorded runs, whatever method they are of; the recorded effects are met as well."""
    made = federation(name)
    live = made.node(party)
    node = Node(live.role, live.identity, made.contacts(party), journal=RecordedStore(()))
    fed = 0
    for record, stored in chain.walk(read(name)[party]):
        if isinstance(record.input, Acknowledged | TurnedAway | Withheld):  # no move of the role
            node.refold(record, stored)
            fed += 1
            continue
        given, _ = node._recorded_input(record.input)
        if not isinstance(given, PeerError):
            state, before = node.state, deep_digest((node.state, given))
            first, second = outcomes(node.role, node.role.step, state, given)
            assert deep_digest(first) == deep_digest(second), record.index
            assert deep_digest((state, given)) == before, record.index
            fed += 1
        _go_on(node, record, stored)
    assert fed == len(read(name)[party])


def _go_on(node: Node, record: StepRecord, stored: bytes) -> None:
    """Take the recorded step and demand its bytes; the mailbox has counted its envelope before."""
    if isinstance(record.input, EnvelopeReceived):
        node.mailbox._inbox[decode_header(record.input.frames).sender].received -= 1
    node.refold(record, stored)
