"""From any snapshot the rest of the journal folds to the same bytes, and crashes leave no trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache

import numpy as np
import pytest

from hdpvfl_mq.app.refold import RecordedStore
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.methods.private_model.last_fit import LastFit
from hdpvfl_mq.methods.score_regression import ScoreRegression
from hdpvfl_mq.node import node_snapshot
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.runtime.snapshots import Snapshots
from hdpvfl_mq.wire.canonical import pack
from parties.phases import setup_of
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.methods import EarlyStop, PrivateModel
from schemas.snapshot import NodeSnapshot
from tests.federation import Federation, manifest, tables

AWAY = Faults(absences=(("telco", 0.05, 40.0),), delay_s=0.002)
CASES = {
    "sound": ({}, None),
    "none": ({"guarantee": "none", "budget": None}, None),
    "paper": ({"guarantee": "paper"}, None),
    "private model": ({"method": PrivateModel(columns_max=8)}, None),
    "early stop": ({"early_stop": EarlyStop(patience=1, tolerance=0.5), "epochs": 8}, None),
    "last block": ({"absence": "last", "absent_after_s": 2.0, "epochs": 3, "batch_rows": 10}, AWAY),
    "left out": (
        {"absence": "nothing", "absent_after_s": 2.0, "epochs": 3, "batch_rows": 10},
        AWAY,
    ),
}


class SnappingNode(Node):
    """Takes a snapshot after every commit, as if each had cost a second."""

    taken: list[NodeSnapshot]

    def _commit(self):
        turn = super()._commit()
        snapshot = node_snapshot.take(self)
        if snapshot is not None:
            self.taken.append(snapshot)
        return turn


@dataclass
class Snapping(Federation):
    """Every process comes up from its last snapshot."""

    taken: dict[str, list[NodeSnapshot]] = field(default_factory=dict)
    found: dict = field(default_factory=dict)
    resumed: list[str] = field(default_factory=list)

    def assets(self, party):
        return replace(super().assets(party), found=self.found.get(party))

    def node(self, party):
        made = super().node(party)
        made.__class__ = SnappingNode
        made.taken = self.taken.setdefault(party, [])
        if made.taken:
            self.learn(party)
            made = self.fresh(party)
            assert node_snapshot.resume(made, made.taken[-1])
            self.resumed.append(party)
        return made

    def fresh(self, party):
        made = super().node(party)
        made.__class__ = SnappingNode
        made.taken = self.taken.setdefault(party, [])
        return made

    def learn(self, party):
        """What the process has kept on disk by then: the alignment in use."""
        if party != COORDINATOR and party not in self.found:
            folded = super().node(party)
            folded.open()
            self.found[party] = setup_of(folded.state).alignment


@cache
def run(case: str) -> Snapping:
    """A run that tests share; they read its journals and make nodes of their own."""
    changes, faults = CASES[case]
    federation = Snapping(manifest(**changes), tables(60))
    federation.simulate(seed=5, faults=faults)
    return federation


MADE_AGAIN = {"setup", "response"}  # from data, secret and alignment; they compare by identity
PARTS = {"trained", "rounds"}


def assert_same_state(found, expected) -> None:
    assert type(found) is type(expected)
    for each in fields(expected):
        mine, theirs = getattr(found, each.name), getattr(expected, each.name)
        if each.name in MADE_AGAIN:
            assert mine is not None
            continue
        if each.name in PARTS and is_dataclass(theirs):
            assert_same_state(mine, theirs)
            continue
        assert_same(getattr(found, each.name), getattr(expected, each.name), each.name)


def assert_same(found, expected, name) -> None:
    if isinstance(expected, np.ndarray):
        assert np.array_equal(found, expected), name
    elif isinstance(expected, Mapping):
        assert set(found) == set(expected), name
        for key, value in expected.items():
            assert_same(found[key], value, name)
    elif isinstance(expected, ScoreRegression | LastFit):
        assert_same(vars(found), vars(expected), name)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected), name
        for mine, theirs in zip(found, expected, strict=True):
            assert_same(mine, theirs, name)
    else:
        assert found == expected, name


@pytest.mark.parametrize("stride", [10, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_from_any_snapshot_the_rest_folds_to_the_same_bytes(case, stride):
    """Every tenth snapshot here, another one for each party; all of them in make soak."""
    federation = run(case)
    for number, (party, taken) in enumerate(federation.taken.items()):
        assert taken, f"{party} took no snapshot"
        federation.learn(party)
        whole = federation.fresh(party)
        whole.open()
        for snapshot in taken[number % min(stride, len(taken)) :: stride]:
            again = federation.fresh(party)
            assert node_snapshot.resume(again, snapshot)
            assert again.steps == snapshot.steps
            again.open()  # DivergenceError if any byte differs
            assert (again.head, again.steps, again.outcome) == (
                whole.head,
                whole.steps,
                "completed",
            )
            assert again.mailbox.marks() == whole.mailbox.marks()
            assert again.mailbox.greeting == whole.mailbox.greeting
            assert set(again.mailbox.unacknowledged()) == set(whole.mailbox.unacknowledged())
            assert_same_state(again.state, whole.state)


@pytest.mark.parametrize("case", CASES)
def test_a_snapshot_is_the_state_it_was_taken_of(case):
    federation = run(case)
    for party, taken in federation.taken.items():
        federation.learn(party)
        at = {snapshot.steps: snapshot for snapshot in taken}
        folded = federation.fresh(party)
        for record, stored in chain.walk(federation.journals[party].records()):
            folded.refold(record, stored)
            if folded.steps in at:
                again = federation.fresh(party)
                node_snapshot.resume(again, at[folded.steps])
                assert_same_state(again.state, folded.state)
                assert again.armed == folded.armed


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 13) if s != 6)],
)  # 6 kills before any snapshot
def test_processes_that_come_back_from_snapshots_leave_no_trace(seed):
    calm = Federation(manifest(batch_rows=10, epochs=6), tables(60))
    expected = calm.weights(calm.simulate())
    disturbed = Snapping(manifest(batch_rows=10, epochs=6), tables(60))
    faults = Faults(loss=0.05, copies=0.05, delay_s=0.01, crashes=8, crash_window_s=1.0)
    found = disturbed.weights(disturbed.simulate(seed=seed, faults=faults))
    for party, weights in expected.items():
        assert np.array_equal(found[party], weights)
    assert disturbed.spent() == calm.spent()
    assert disturbed.resumed


def relabelled(own):
    """The same rows, another class that counts as 1: the fingerprint is the same."""
    settings = {**dict(own.data.settings), "label_positive": "b", "label_classes": ("a", "b")}
    return replace(own, data=replace(own.data, settings=DataSettings(**settings)))


OTHER = {
    "rows": lambda own: replace(own, data=replace(own.data, fingerprint=bytes(32))),
    "secret": lambda own: replace(own, secret=bytes(32)),
    "labels": relabelled,
    "numeric profile": lambda own: replace(own, numeric_profile="another machine"),
    "alignment": lambda own: replace(own, found=None),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_snapshot_of_something_else_is_passed_over(name):
    federation = run("sound")
    federation.learn("shop")
    node = federation.fresh("shop")
    node.role.own = OTHER[name](node.role.own)
    assert not node_snapshot.resume(node, federation.taken["shop"][-1])
    assert node.steps == 0


def test_the_name_of_the_file_may_be_another():
    federation = run("sound")
    federation.learn("shop")
    node = federation.fresh("shop")
    own = node.role.own
    moved = DataSettings(**{**dict(own.data.settings), "file": "elsewhere.csv"})
    node.role.own = replace(own, data=replace(own.data, settings=moved))
    assert node_snapshot.resume(node, federation.taken["shop"][-1])


@pytest.mark.parametrize(
    "changes", [{"head": bytes(32)}, {"steps": 10_000}, {"party": "bank"}, {"version": "other"}]
)
def test_a_snapshot_of_another_journal_or_program_is_passed_over(changes):
    federation = run("sound")
    federation.learn("shop")
    node = federation.fresh("shop")
    assert not node_snapshot.resume(
        node, NodeSnapshot(**{**dict(federation.taken["shop"][-1]), **changes})
    )
    assert node.open() > 0


@pytest.mark.parametrize("is_older", [False, True])
def test_a_snapshot_from_before_streams_had_epochs_is_passed_over(tmp_path, is_older):
    federation = run("sound")
    federation.learn("shop")
    taken, file = federation.taken["shop"][-1], Snapshots(tmp_path / "s", federation.keys["shop"])
    plain = taken.model_dump()
    for stream in plain["streams"]:
        assert stream["epoch"] > 0
        if is_older:
            del stream["epoch"]
    file._write(pack(plain))
    assert file.load() == (None if is_older else taken)


def test_no_snapshot_is_taken_when_somebody_has_left():
    """It does not say who has left, so a copy of the last words would look like a lost journal."""
    federation = run("sound")
    federation.learn("shop")
    node = federation.fresh("shop")
    assert node_snapshot.resume(node, federation.taken["shop"][-1])
    assert node_snapshot.take(node) is not None
    node.mailbox._left.add("bank")
    assert node_snapshot.take(node) is None


def test_an_older_ledger_gets_every_release_that_a_snapshot_would_pass_over():
    """Bug: put back during a run, it never counted what was sent between its end and a snapshot."""
    federation = run.__wrapped__("sound")
    federation.learn("shop")
    ledger, whole = federation.ledgers["shop"], federation.spent()["shop"]
    released = "SELECT max(sequence) FROM entry WHERE release_id IS NOT NULL"
    (last,) = ledger.execute(released).fetchone()
    ledger.execute("DELETE FROM cosignature")
    ledger.execute("DELETE FROM entry WHERE sequence >= ?", (last - 1,))
    node = federation.fresh("shop")
    assert not node_snapshot.resume(node, federation.taken["shop"][-1])
    node.open()
    assert federation.spent()["shop"] == whole


def test_a_damaged_record_is_not_sent_again():
    """What a snapshot takes from the journal is held to its digest, as in folding."""
    federation = run("sound")
    federation.learn("shop")
    waiting = next(s for s in federation.taken["shop"] if len(s.unacknowledged.array()))
    index = int(waiting.unacknowledged.array()[0])
    rows = list(federation.journals["shop"].records())
    place, stored, digest = rows[index]
    rows[index] = (place, stored[:-1] + bytes([stored[-1] ^ 1]), digest)
    node = federation.fresh("shop")
    node._journal = RecordedStore(rows)
    with pytest.raises(IntegrityError, match=f"record {index} does not match its digest"):
        node_snapshot.resume(node, waiting)


def test_a_party_that_has_not_kept_its_alignment_folds_from_the_first_record():
    federation = run.__wrapped__("sound")  # nobody has asked it to learn its alignment
    node = federation.fresh("shop")
    assert not node_snapshot.resume(node, federation.taken["shop"][-1])
