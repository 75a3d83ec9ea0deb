"""Parts and peers of the bench that fail, hang or are missing cost only their own rows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.benches import ciphers, peer
from scripts.benches.isolated import rows_of
from scripts.benches.parts import PARTS, Scope
from scripts.benches.row import Row

FIRST = Row("first", "1 s")


def test_a_part_sends_its_rows():
    assert list(rows_of(lambda: [FIRST, FIRST], 60)) == [FIRST, FIRST]


def test_a_part_that_fails_keeps_the_rows_before():
    def part():
        yield FIRST
        raise RuntimeError("no disk")

    assert list(rows_of(part, 60)) == [FIRST, "failed: RuntimeError: no disk"]


def test_a_part_that_hangs_is_stopped_with_its_children(tmp_path):
    def part():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (tmp_path / "pid").write_text(str(child.pid))
        yield FIRST
        time.sleep(600)

    assert list(rows_of(part, 1.0)) == [FIRST, "stopped after 1 s"]
    wait_for_end(Path("/proc", (tmp_path / "pid").read_text(), "stat"))


def wait_for_end(stat):
    deadline = time.monotonic() + 60
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "the part's child goes on"
        time.sleep(0.01)


def test_a_part_that_dies_says_so():
    assert list(rows_of(lambda: os._exit(3), 60)) == ["its process ended without a word"]


def test_every_part_has_limits():
    assert all(0 < part.quick_s <= part.full_s for part in PARTS.values())


def test_fate_is_asked_for_an_epoch_with_and_without_encryption(tmp_path, monkeypatch):
    asked = []

    def answer(*arguments, limit_s):
        asked.append(arguments)
        return {"wall_s": 2.0}

    monkeypatch.setattr(ciphers, "own_epoch", lambda: 1.0)
    monkeypatch.setattr(ciphers, "run_peer", answer)
    rows = list(PARTS["fate"].rows(Scope(quick=False, cache=tmp_path)))
    assert asked == [
        ("fate", "fate_epoch", 10_000, 10, 13, 3_200, cipher) for cipher in ("paillier", "mock")
    ]
    assert [row.value for row in rows] == [0.5, 0.5]
    assert list(PARTS["fate"].rows(Scope(quick=True, cache=tmp_path))) == []
    assert (peer.PROGRAMS / "fate_epoch.py").exists()
    assert "fate" not in peer.ABSENT


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs, and one ready environment whose interpreter is this one."""
    monkeypatch.setattr(peer, "PROGRAMS", tmp_path)
    monkeypatch.setattr(peer, "ENVIRONMENTS", tmp_path / "environments")
    python = tmp_path / "environments" / "here" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (python.parents[1] / "ready").touch()
    return tmp_path


def test_a_peer_prints_one_object_among_other_lines(programs):
    (programs / "one.py").write_text("print('log'); print('{\"wall_s\": 2.5}'); print('end')")
    assert peer.run_peer("here", "one", limit_s=60) == {"wall_s": 2.5}


def test_a_peer_that_fails_is_a_sentence(programs):
    (programs / "one.py").write_text("raise SystemExit('no such protocol')")
    assert peer.run_peer("here", "one", limit_s=60) == "failed: no such protocol"


def test_a_peer_that_hangs_is_a_sentence(programs):
    (programs / "one.py").write_text("import time; time.sleep(600)")
    assert peer.run_peer("here", "one", limit_s=0.5) == "took more than 0 s"


def test_a_peer_that_is_not_installed_is_a_sentence(programs):
    assert peer.run_peer("elsewhere", "one", limit_s=60) == "not installed"


def test_an_environment_that_was_not_made_says_why(programs):
    folder = programs / "environments" / "broken"
    folder.mkdir()
    (folder / "reason").write_text("no wheel")
    assert peer.run_peer("broken", "one", limit_s=60) == "not installed: no wheel"


def test_the_reason_is_what_the_first_failing_command_said_last():
    commands = [[sys.executable, "-c", each] for each in ("", "exit('no wheel')", "exit('late')")]
    assert peer.first_failure(commands) == "no wheel"
    assert peer.first_failure(commands[:1]) == ""
