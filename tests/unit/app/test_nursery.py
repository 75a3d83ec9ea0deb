"""The demo's processes: forked from warm parents, yet processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hdpvfl_mq.app.demo import warm
from hdpvfl_mq.app.demo.nursery import LOST, Nursery

pytestmark = pytest.mark.seconds
PROGRAM = "tests.unit.app.nursery_program"
ROOT = Path(__file__).parents[3]
WAIT_S = 60.0


@pytest.fixture
def nursery():
    with Nursery() as made:
        yield made


def start(nursery: Nursery, folder: Path, wanted: str, name: str = "shop"):
    settings = folder / f"{name}.toml"
    settings.write_text(wanted)
    return nursery.start(PROGRAM, settings, folder / "log")


def said(folder: Path, name: str = "shop") -> dict:
    path, end = folder / f"{name}.json", time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.01)
    return json.loads(path.read_text())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_gone(*pids: int) -> None:
    end = time.monotonic() + WAIT_S
    while not all(map(is_gone, pids)):
        assert time.monotonic() < end, f"{pids} still run"
        time.sleep(0.01)


def test_a_child_is_a_process_of_its_own(nursery, tmp_path):
    children = [start(nursery, tmp_path, "7", name) for name in ("shop", "bank")]
    assert [child.wait(WAIT_S) for child in children] == [7, 7]
    first, second = said(tmp_path, "shop"), said(tmp_path, "bank")
    assert [child.pid for child in children] == [first["pid"], second["pid"]]
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
    assert first["dice"] != second["dice"]  # forks share no random state
    assert first["watched"] == first["parent"] != os.getpid()
    assert first["name"] == "shop"
    assert sorted((tmp_path / "log").read_text().split("\n")[:2]) == [
        "output of bank",
        "output of shop",
    ]


def test_a_child_that_fails_leaves_its_traceback_in_its_log(nursery, tmp_path):
    assert start(nursery, tmp_path, "fail").wait(WAIT_S) == 1
    assert "ValueError: it failed" in (tmp_path / "log").read_text()


def test_a_signal_that_comes_at_once_is_not_lost(nursery, tmp_path):
    """Bug: the warm parent ignores SIGTERM, and so did its child until it had set its handlers."""
    for number in range(12):  # a quick child has its handlers before the signal comes
        child = start(nursery, tmp_path, "wait", f"shop-{number}")
        child.terminate()
        # The parent obeys in order, so it has sent the signal when another child has ended.
        assert start(nursery, tmp_path, "0", "bank").wait(WAIT_S) == 0
        (tmp_path / f"shop-{number}.over").touch()  # who has lost the signal ends with code 0
        assert child.wait(WAIT_S) == -signal.SIGTERM


def test_ctrl_c_before_a_child_has_its_log_leaves_a_traceback_there(nursery, tmp_path):
    """Bug: the traceback of a child that had not opened its log came on the operator's terminal."""
    os.mkfifo(tmp_path / "log")  # the child waits in open() until somebody reads
    child = start(nursery, tmp_path, "0")
    os.kill(child.pid, signal.SIGINT)
    with (tmp_path / "log").open() as log:
        assert log.read().endswith("KeyboardInterrupt\n")
    assert child.wait(WAIT_S) == warm.EXIT_FAILED


def test_ctrl_c_during_a_fork_is_not_lost(monkeypatch):
    """Bug: it was dropped by a function that logging runs at a fork, and the demo went on."""
    fork = os.fork

    def interrupted_fork() -> int:
        with suppress(KeyboardInterrupt):  # as the interpreter does around such functions
            signal.raise_signal(signal.SIGINT)  # to this thread: a test worker has others
        return fork()

    monkeypatch.setattr(os, "fork", interrupted_fork)
    monkeypatch.setattr(warm, "become", lambda program, line: os._exit(0))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Nursery()
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(warm.SIGNALS)
    finally:
        signal.signal(signal.SIGINT, handler)


def test_one_child_is_killed_and_the_other_lives(nursery, tmp_path):
    one, two = (start(nursery, tmp_path, "wait", name) for name in ("shop", "bank"))
    said(tmp_path, "shop"), said(tmp_path, "bank")
    one.kill()
    assert one.wait(WAIT_S) == -signal.SIGKILL
    assert two.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        two.wait(0.05)


def test_a_warm_parent_that_is_killed_ends_its_children(nursery, tmp_path):
    child = start(nursery, tmp_path, "wait")
    about = said(tmp_path)
    os.kill(about["parent"], signal.SIGKILL)
    assert child.wait(WAIT_S) == LOST
    wait_gone(about["pid"])
    assert start(nursery, tmp_path, "0", "bank").wait(WAIT_S) == LOST


def test_a_warm_parent_that_is_killed_with_a_request_unread_is_noticed(nursery, tmp_path):
    """Bug: the reset of the line ended the command with a traceback."""
    start(nursery, tmp_path, "0").wait(WAIT_S)
    parent = said(tmp_path)["parent"]
    os.kill(parent, signal.SIGSTOP)
    child = start(nursery, tmp_path, "0", "bank")
    os.kill(parent, signal.SIGKILL)
    assert child.wait(WAIT_S) == LOST


def test_closing_ends_everything(tmp_path):
    with Nursery() as nursery:
        start(nursery, tmp_path, "wait")
        about = said(tmp_path)
    wait_gone(about["pid"], about["parent"])


def test_a_plan_that_cannot_be_made_disturbs_nobody(nursery, tmp_path):
    nursery.plan_ahead({"run": "no manifest"}, 100)
    assert start(nursery, tmp_path, "3").wait(WAIT_S) == 3


def test_new_interpreters_serve_where_nothing_is_forked(tmp_path):
    with Nursery(fork=False) as nursery:
        (tmp_path / "broker.toml").write_text("")
        child = nursery.start(warm.BROKER, tmp_path / "broker.toml", tmp_path / "log")
        assert child.wait(WAIT_S) == 2
    assert "broker.toml" in (tmp_path / "log").read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
from hdpvfl_mq.app.demo.nursery import Nursery
folder, threads_when_forking = Path(sys.argv[1]), []
os.register_at_fork(
    before=lambda: threads_when_forking.append(len(list(Path("/proc/self/task").iterdir())))
)
nursery = Nursery()
(folder / "shop.toml").write_text("wait")
nursery.start("tests.unit.app.nursery_program", folder / "shop.toml", folder / "log")
while not (folder / "shop.json").exists():
    pass
print("command", threads_when_forking)
for parent in nursery._parents.values():
    each = Path(f"/proc/{parent.pid}")
    maps = (each / "maps").read_text()
    large = [lib for lib in ("numpy", "pyarrow", "sklearn") if f"/{lib}/" in maps]
    print((each / "comm").read_text().strip(), len(list((each / "task").iterdir())), *large)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """A command in a fresh interpreter that shows its warm parents and is killed; its folder."""
    folder = tmp_path_factory.mktemp("killed")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)],
        capture_output=True,
        input="",
        text=True,
        check=False,
        cwd=ROOT,
        timeout=WAIT_S,
    )
    return folder, ended


def test_a_killed_command_leaves_nothing(killed):
    folder, ended = killed
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    about = said(folder)
    wait_gone(about["pid"], about["parent"])


def test_warm_parents_have_one_thread_and_the_brokers_has_no_numpy(killed):
    folder, ended = killed
    assert ended.stdout.splitlines() == [
        "command [1, 1]",
        "warm-broker 1",
        "warm-parties 1 numpy pyarrow",
    ]
    about = said(folder)
    assert about["threads"] == 1
    assert about["input"] == "/dev/null"  # not that of the command
