"""The snapshot file: when it is written, who can read it, and what is passed over."""

from __future__ import annotations

import stat
from dataclasses import replace
from functools import cache
from weakref import WeakSet

import numpy as np
import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.node import node_snapshot
from hdpvfl_mq.runtime import files, snapshots
from hdpvfl_mq.runtime.snapshots import EVERY_CPU_S, REST_BY_COST, Snapshots
from tests.federation import Federation, manifest, tables

pytestmark = pytest.mark.seconds

KEY = SigningKey(bytes(range(32)))


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(snapshots, "EVERY_CPU_S", 0.0)
    monkeypatch.setattr(snapshots, "LOOK_S", 0.0)


@cache
def trained():
    """One run for all tests, and what a passive party has recorded of it."""
    federation = Federation(manifest(batch_rows=10, epochs=20), tables(60))
    simulation = federation.simulate()
    return federation, simulation, list(federation.journals["shop"].records())


def training_node():
    """A passive party's process in the middle of its rounds, and how to start it again."""
    federation, simulation, rows = trained()
    federation.journals["shop"] = Recorded(rows[: len(rows) - 20])
    node = federation.node("shop")
    node.open()
    for outbox in node.mailbox._outbox.values():
        outbox.acknowledge(outbox.sent)
    return federation, node, simulation


class Recorded:
    def __init__(self, rows):
        self.rows, self.read = rows, 0

    def records(self, first=0):
        for row in self.rows[first:]:
            self.read += 1
            yield row


def test_the_file_is_written_for_its_owner_only_and_read_back(tmp_path, often):
    _, node, _ = training_node()
    kept = Snapshots(tmp_path / "deep" / "run", KEY)
    kept.see(node)
    path = tmp_path / "deep" / "run"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["run"]
    assert kept.load() == node_snapshot.take(node)


def test_nothing_is_written_before_enough_was_computed(tmp_path, monkeypatch):
    _, node, _ = training_node()
    kept = Snapshots(tmp_path / "run", KEY)
    monkeypatch.setattr(snapshots, "EVERY_CPU_S", 1e9)
    kept.see(node)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hosted", [1, 64])
def test_the_nodes_of_one_process_share_a_twentieth_of_its_time(tmp_path, monkeypatch, hosted):
    """Bug: each of 16 parties in one process wrote a snapshot for every second of them all."""
    _, node, _ = training_node()
    clock, takes_s = [100.0], 0.1
    monkeypatch.setattr(snapshots, "LOOK_S", 0.0)
    monkeypatch.setattr(snapshots, "_all", WeakSet())
    monkeypatch.setattr(snapshots.time, "process_time", lambda: clock[0])
    kept = [Snapshots(tmp_path / str(number), KEY) for number in range(hosted)]

    def write(self, body):
        clock[0] += takes_s
        written.append(self)

    written = []
    monkeypatch.setattr(Snapshots, "_write", write)
    clock[0] += EVERY_CPU_S
    kept[0].see(node)
    assert written == kept[:1]
    clock[0] += hosted * REST_BY_COST * takes_s - 0.01
    kept[0].see(node)
    assert written == kept[:1]
    clock[0] += 0.02
    kept[0].see(node)
    assert written == [kept[0], kept[0]]


def test_it_is_gone_when_the_run_is_over(tmp_path, often):
    _, node, simulation = training_node()
    kept = Snapshots(tmp_path / "run", KEY)
    kept.see(node)
    kept.see(simulation.nodes["shop"])
    assert kept.load() is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_torn_changed_or_of_another_key_is_passed_over(tmp_path, often):
    _, node, _ = training_node()
    path = tmp_path / "run"
    Snapshots(path, KEY).see(node)
    whole = path.read_bytes()
    assert Snapshots(path, SigningKey(bytes(32))).load() is None
    for length in (0, 1, 63, 64, 65, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert Snapshots(path, KEY).load() is None
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert Snapshots(path, KEY).load() is None
    path.write_bytes(whole)
    assert Snapshots(path, KEY).load() is not None


def test_a_disk_that_is_full_costs_the_short_cut_only(tmp_path, often, monkeypatch):
    _, node, _ = training_node()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "open", full)
    kept = Snapshots(tmp_path / "run", KEY)
    kept.see(node)
    assert kept.load() is None


def test_a_restart_reads_the_records_since_the_snapshot_and_no_others(tmp_path, often):
    federation, node, _ = training_node()
    kept = Snapshots(tmp_path / "run", KEY)
    kept.see(node)
    again = federation.node("shop")
    object.__setattr__(again.role.own, "found", node.state.setup.alignment)
    federation.journals["shop"].read = 0
    assert node_snapshot.resume(again, kept.load())
    again.open()
    assert again.steps == node.steps > 100
    assert federation.journals["shop"].read == 2  # the last record and the one with the greeting


def test_a_state_that_no_snapshot_can_hold_costs_the_short_cut_only(tmp_path, often):
    _, node, _ = training_node()
    rounds = replace(node.state.rounds, w=np.array([np.inf]))
    node.state = replace(node.state, rounds=rounds)
    kept = Snapshots(tmp_path / "run", KEY)
    kept.see(node)
    assert kept.load() is None


def test_a_process_that_has_recorded_nothing_has_no_snapshot():
    federation = Federation(manifest(), tables(60))
    assert node_snapshot.take(federation.node("coordinator")) is None


def test_what_a_torn_write_left_goes_with_the_run(tmp_path, often):
    _, _, simulation = training_node()
    (tmp_path / "run.new").write_bytes(b"half a snapshot, with weights")
    Snapshots(tmp_path / "run", KEY).see(simulation.nodes["shop"])
    assert list(tmp_path.iterdir()) == []


def test_snapshots_that_take_long_are_rare(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(snapshots.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(snapshots, "LOOK_S", 0.0)
    _, node, _ = training_node()
    kept = Snapshots(tmp_path / "run", KEY)

    def slow(_):
        clock[0] += 2.0
        taken.append(clock[0])

    taken: list[float] = []
    monkeypatch.setattr(node_snapshot, "take", slow)
    for _ in range(100):
        clock[0] += 1.0
        kept.see(node)
    assert len(taken) == 3  # each costs 2 s, so 40 s pass before the next
