"""Releases in parts: whole federations whose small releases count as large."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import pytest

from hdpvfl_mq.app.refold import RecordedStore
from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.audit.bundle import Stamp, pack
from hdpvfl_mq.audit.reader import read_evidence
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.parts import WINDOW_PARTS
from hdpvfl_mq.runtime.simulation import Faults, Killed, Simulation
from hdpvfl_mq.wire import parts
from hdpvfl_mq.wire.codec import decode_body, decode_header
from hdpvfl_mq.wire.parts import is_in_parts
from parties.phases import Training
from schemas import tensor
from schemas.delivery import Part
from schemas.ids import COORDINATOR
from schemas.methods import PrivateModel
from schemas.tensor import Tensor
from scripts import verify_journal
from tests.evidence import evidence_of, write_run
from tests.federation import Federation, LyingFederation, manifest, tables
from tests.simulation.greedy import Greedy

ROWS = 150  # a release has hundreds of bytes
METHOD = PrivateModel(columns_max=8)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "LARGE_BYTES", 64)
    monkeypatch.setattr(parts, "PART_BYTES", 16)
    monkeypatch.setattr(tensor, "BUFFER_ABOVE", 64)


def made(kind=Federation, **changes):
    return kind(manifest(method=METHOD), tables(ROWS), **changes)


def weights(simulation) -> dict[str, list[float]]:
    return {
        p: node.state.trained.rounds.final_weights.tolist()
        for p, node in simulation.nodes.items()
        if p != "coordinator"
    }


@cache
def without_parts() -> tuple[Federation, Simulation]:
    """An undisturbed run for tests that only read it."""
    with pytest.MonkeyPatch.context() as large:
        large.setattr(parts, "LARGE_BYTES", 2**20)
        federation = made()
        return federation, federation.simulate()


def in_one_frame() -> dict[str, list[float]]:
    return weights(without_parts()[1])


@cache
def in_parts() -> tuple[Federation, Simulation]:
    """An undisturbed run for tests that only read it."""
    federation = made()
    return federation, federation.simulate()


def test_a_run_in_parts_gives_the_model_of_a_run_in_one_frame():
    federation, simulation = in_parts()
    shown = [e for t in evidence_of(federation).transcripts.values() for e in t.envelopes]
    assert {e.header.kind for e in shown if is_in_parts(e.frames)} == {"residual", "score_share"}
    assert weights(simulation) == in_one_frame()


def test_small_releases_have_no_parts_and_no_table():
    federation, _ = without_parts()
    for journal in federation.journals.values():
        names = {n for (n,) in journal._connection.execute("SELECT name FROM sqlite_master")}
        assert "parts" not in names


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_lost_copied_and_late_parts_are_asked_for_again(seed):
    federation = made()
    faults = Faults(loss=0.2, copies=0.2, delay_s=0.3, crashes=4, crash_window_s=12.0)
    assert weights(federation.simulate(seed=seed, faults=faults)) == in_one_frame()
    assert [v for v in audit(evidence_of(federation)) if v.found] == []


class Mortal:
    """A journal whose process dies once, before or after one of its calls."""

    def __init__(self, journal: Journal, party: str, plan: MortalPlan) -> None:
        self._journal, self._party, self._plan = journal, party, plan
        for name in ("records", "part", "missing_parts", "joined", "close"):
            setattr(self, name, getattr(journal, name))

    def commit(self, records) -> None:
        self._journal.commit(records)

    def keep_parts(self, stored) -> None:
        self._plan.calls[self._party] += 1
        is_now = self._plan.at == (self._party, self._plan.calls[self._party])
        if is_now and not self._plan.is_after:
            raise Killed(self._party)
        self._journal.keep_parts(stored)
        if is_now:
            raise Killed(self._party)


@dataclass
class MortalPlan:
    at: tuple[str, int] = ("", 0)
    is_after: bool = False
    calls: Counter = field(default_factory=Counter)


@dataclass
class MortalFederation(Federation):
    plan: MortalPlan = field(default_factory=MortalPlan)

    def node(self, party: str) -> Node:
        node = super().node(party)
        mortal = Mortal(self.journals[party], party, self.plan)
        return Node(
            node.role, node.identity, self.contacts(party), journal=mortal, ledger=node.ledger
        )


@cache
def nobody_killed() -> MortalFederation:
    """How often each party stores parts, and what it spends."""
    federation = made(MortalFederation)
    federation.simulate()
    return federation


@pytest.mark.parametrize(
    ("party", "is_after", "is_always"),
    [
        ("bank", True, False),
        ("shop", False, False),
        *(
            pytest.param(party, is_after, True, marks=pytest.mark.slow)
            for party in ("bank", "shop")
            for is_after in (False, True)
        ),
    ],
)
def test_killed_whenever_a_part_is_stored(party, is_after, is_always):
    """Four of the moments here, all of them in make soak."""
    expected, whole = in_one_frame(), nobody_killed()
    stages = whole.plan.calls[party]
    assert stages > 3  # own parts, and several turns of a peer's
    for call in range(1, stages + 1) if is_always else (1, 2, stages // 2, stages):
        federation = made(MortalFederation, plan=MortalPlan((party, call), is_after))
        simulation = federation.simulate()
        assert simulation.crashes == 1
        assert weights(simulation) == expected
        assert federation.spent() == whole.spent()


def test_audit_verifier_and_replay_read_parts(tmp_path):
    federation, simulation = in_parts()
    evidence = evidence_of(federation)
    assert [v for v in audit(evidence) if v.found] == []
    run = write_run(evidence, tmp_path)
    assert verify_journal.verify(run) == {}
    assert [v for v in audit(read_evidence(run)) if v.found] == []
    bundle = tmp_path / "run.zip"
    names = tuple(sorted(evidence.transcripts))
    pack(bundle, run, journals=names, ledgers=run, stamp=Stamp("2026-11-17T00:00:00Z", "1", {}))
    assert verify_journal.report_bundle(bundle)[1] == {}
    shown = evidence.transcripts["shop"]
    again = federation.node("shop")
    store = RecordedStore(shown.rows, shown.joined)
    folded = Node(again.role, again.identity, federation.contacts("shop"), journal=store)
    assert folded.open() == len(shown.rows)
    assert folded.head == simulation.nodes["shop"].head


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("change", ["UPDATE parts SET part = zeroblob(16)", "DELETE FROM parts"])
def test_a_changed_or_missing_part_is_found(party, change, tmp_path):
    federation, _ = in_parts()
    run = write_run(evidence_of(federation), tmp_path)
    database = sqlite3.connect(run / party / "journal.db")
    database.execute(f"{change} WHERE rowid = 3")
    database.commit()
    database.close()
    found = [v for v in audit(read_evidence(run)) if v.found]
    assert found[0].number == 1
    assert party in found[0].found
    assert "part " in found[0].found
    assert party in verify_journal.verify(run)[2]


def test_a_process_stops_at_a_damaged_part_of_its_own_journal():
    federation = made()
    federation.simulate()
    journal = federation.journals["shop"]
    journal._connection.execute("UPDATE parts SET part = zeroblob(16) WHERE rowid = 3")
    with pytest.raises(IntegrityError, match="does not match its digest"):
        federation.node("shop").open()


def changed_part(change):
    """A node whose parts leave with other contents or numbers."""

    class Liar(Node):
        def _exchanged(self, turn, taken):
            served = self.parts.served
            self.parts.served = lambda: (
                (peer, changed) for peer, part in served() for changed in change(part)
            )
            try:
                return super()._exchanged(turn, taken)
            finally:
                self.parts.served = served

    return Liar


def other(part: Part, **changes) -> Part:
    return Part(**{**dict(part), **changes})


ZEROS = Tensor(dtype="|u1", shape=(16,), data=bytes(16))
LIES = {
    "other bytes": lambda part: [other(part, tensor=ZEROS)],
    "another number": lambda part: [other(part, number=part.number + 1)],
    "a number beyond the list": lambda part: [other(part, number=2**17)],
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liar", ["bank", "shop"])
def test_a_false_part_ends_the_run_and_names_its_sender(lie, liar):
    federation = made(LyingFederation, liars={liar: changed_part(LIES[lie])})
    simulation = federation.simulate()
    honest = "shop" if liar == "bank" else "bank"
    assert "completed" not in set(federation.outcomes.values())
    assert liar in simulation.nodes[honest].state.reason
    reasons = [reason for _, reason, *_ in federation.journals[honest].refusals()]
    assert any("not one of those that its envelope lists" in reason for reason in reasons)


def test_parts_twice_unasked_and_for_nothing_are_refused_and_change_nothing():
    def too_many(part):
        return [part, part, other(part, sequence=part.sequence + 5)]

    federation = made(LyingFederation, liars={"shop": changed_part(too_many)})
    assert weights(federation.simulate()) == in_one_frame()
    reasons = " ".join(reason for _, reason, *_ in federation.journals["bank"].refusals())
    assert "which was not asked for" in reasons
    assert "which waits for none" in reasons


MINUTES = 180.0  # of virtual time; the deadline is a day
AWAY_S = 2 * MINUTES


@pytest.mark.parametrize("served", [0, 3])
@pytest.mark.parametrize("liar", ["bank", "shop"])
def test_a_peer_that_serves_no_more_parts_ends_the_run_for_all(liar, served):
    """Bug: the others named it and waited until the deadline."""
    count = iter(range(10**6))
    lie = changed_part(lambda part: [part] if next(count) < served else [])
    federation = made(LyingFederation, liars={liar: lie})
    simulation = federation.simulate()
    assert simulation.now < MINUTES
    honest = {COORDINATOR, "bank", "shop", "telco"} - {liar}
    for name in honest:
        assert federation.outcomes[name] == "mismatch"
        assert liar in simulation.nodes[name].state.reason, name
        assert "missing" in simulation.nodes[name].state.reason, name


class Slow(Simulation):
    """A part of shop's gets through once in a while, everything else at once."""

    every_s = 20.0
    passed_at = 0.0

    def _send(self, party, frames):
        if party == "shop" and decode_header(frames).kind == "part":
            if self.now < Slow.passed_at + self.every_s:
                return
            Slow.passed_at = self.now
        super()._send(party, frames)


def test_a_transfer_that_is_slow_but_goes_on_is_not_ended(monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.app.demo.rehearsal.Simulation", Slow)
    Slow.passed_at = 0.0
    federation = made()
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    assert simulation.now > MINUTES  # longer than a peer may serve nothing


class Gone(Simulation):
    """The process of shop dies after its first part, for longer than a peer may serve none."""

    def _send(self, party, frames):
        is_part = party == "shop" and decode_header(frames).kind == "part"
        if is_part and not self._processes[party].alive:
            return  # of the turn in which it died
        super()._send(party, frames)
        if is_part and not self.crashes:
            self._crash(party, AWAY_S)


def test_a_party_that_is_away_while_its_parts_are_awaited_is_waited_for(monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.app.demo.rehearsal.Simulation", Gone)
    federation, asked = made(), []

    def look(node):
        if isinstance(node.state, Training) and node.state.waiting_for:  # the coordinator asks
            asked.append("shop" in node.parts.waiting_for())

    federation.operators["bank"] = look
    simulation = federation.simulate()
    assert simulation.now > AWAY_S
    assert any(asked)
    assert weights(simulation) == in_one_frame()


def test_a_release_larger_than_the_plan_is_refused_unasked():
    federation = made(LyingFederation, liars={"shop": Greedy})
    simulation = federation.simulate()
    assert "shop" in simulation.nodes["bank"].state.reason
    stored = federation.journals["bank"]._connection.execute("SELECT COUNT(*) FROM parts")
    assert stored.fetchone()[0] < 200  # its own residual and the other share, none of the 6250


class Counting(Simulation):
    """Counts the parts that are on their way to a party at a time."""

    most = 0
    flying: ClassVar[Counter] = Counter()

    def _send(self, party, frames):
        if decode_header(frames).kind == "part":
            to = decode_header(frames).to[0].party
            self.flying[to] += 1
            Counting.most = max(Counting.most, self.flying[to])
        super()._send(party, frames)

    def _deliver(self, party, life, frames):
        if decode_header(frames).kind == "part":
            assert isinstance(decode_body(decode_header(frames), frames), Part)
            self.flying[party] -= 1
        super()._deliver(party, life, frames)


def test_parts_on_their_way_are_bounded(monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.app.demo.rehearsal.Simulation", Counting)
    made().simulate()
    assert 1 < Counting.most <= WINDOW_PARTS + 1
